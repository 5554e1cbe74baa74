"""Chapters `tensors`, `sequence` and `annotated`: targets' formulas, slow results of one device, other layouts."""

import ast
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.engine import ShardedEngine, launch
from lib.layout import Graph, TensorLayout, candidates, least_bytes, mesh, mesh_split, redistribute
from lib.layout.spmd import TracedProgram, follow
from lib.layout.spmd import mesh_split as annotate
from puzzles.catalog.engine import ENGINE_PUZZLES, models, trials_of
from puzzles.catalog.engine.models import attention, numbers
from puzzles.catalog.engine.puzzle import FIGURES
from puzzles.content.engine.annotated.trials import annotated_mlp
from puzzles.content.engine.layers.trials import causal_ring_attention, ring_attention
from puzzles.content.engine.tensors.trials import matmul_2d
from puzzles.tracks.engine.judge import require_right
from solutions.engine.annotated_mlp import AnnotatedMLP
from solutions.engine.annotated_moe import AnnotatedMoE
from solutions.engine.ring_attention import Queries, RingAttention
from solutions.engine.vocab_parallel_loss import VocabParallelLoss
from tests.screens.texts import approved
from tests.support.engine_trials import REFERENCES, SOLUTIONS, perform, reference, verdict_on
from tests.support.examples import examples

pytestmark = pytest.mark.usefixtures("in_this_process")

# --- Chapter `tensors`: the targets' formulas, the single-device results against slow ones, and large numbers ---


@pytest.mark.parametrize("slug", ["Matmul2D", "MegatronLayer", "MegatronMesh", "VocabParallelLoss"])
def test_the_formulas_are_met_exactly_at_every_size(slug: str) -> None:
    for make in trials_of(ENGINE_PUZZLES[slug]):
        trial = make()
        performed = perform(trial, reference(slug))
        exact = {name: limit for name, limit in (trial.targets or {}).items() if name != "peak"}
        assert {name: FIGURES[name].of(performed) for name in exact} == exact


# --- Matmul2D: three ways to go forward ---------------------------------------------------------------


class OneProduct(ShardedEngine):
    """x is cut along both axes of a 2 x 2 mesh, w along the second."""

    def load_checkpoint(self, params: Any) -> None:
        self.along_y = [self.device_id // 2 * 2, self.device_id // 2 * 2 + 1]
        self.w = np.split(params["weights"], 2)[self.device_id % 2].copy()

    def backward(self, grads: Any) -> Any: ...


class Replicated(OneProduct):
    def forward(self, x: Any) -> Any:
        return self.all_reduce(x @ self.w, group=self.along_y)


class Scattered(OneProduct):
    def forward(self, x: Any) -> Any:
        return self.reduce_scatter(x @ self.w, axis=1, group=self.along_y)


class GatheredFirst(OneProduct):
    def forward(self, x: Any) -> Any:
        return self.all_gather(x, 1, self.along_y) @ self.all_gather(self.w, 0, self.along_y)


@pytest.mark.parametrize(
    ("cls", "sent", "flops"), [(Replicated, 512, 2_048), (Scattered, 256, 2_048), (GatheredFirst, 1_152, 4_096)]
)
def test_a_product_on_a_mesh_can_sum_scatter_or_gather(cls: type, sent: int, flops: int) -> None:
    trial = matmul_2d()
    with launch(cls, num_devices=4) as devices:
        devices.load_checkpoint(trial.params)
        outputs = devices.forward(list(trial.calls[0].arguments))
        assert {(meter.sent, meter.flops) for meter in devices.meters} == {(sent, flops)}
    wanted = trial.calls[0].wanted
    assert wanted is not None
    for i, output in enumerate(outputs):
        right = wanted[i] if cls is Scattered else np.concatenate(wanted[i // 2 * 2 : i // 2 * 2 + 2], axis=1)
        assert np.allclose(output, right, rtol=0, atol=1e-6)


# --- MegatronLayer: the single device ------------------------------------------------------------------


def slowly(params: Any, x: Any, heads: int) -> Any:
    """The layer, token by token, from the definition."""
    q, k, v = (x @ params[f"attention/{name}"].astype(float) for name in ("query", "key", "value"))
    each = x.shape[1] // heads
    mixed = np.zeros_like(x)
    for token in range(len(x)):
        for head in range(heads):
            at = slice(head * each, (head + 1) * each)
            powers = [np.exp(q[token, at].dot(other) / each**0.5) for other in k[:, at]]
            mixed[token, at] = sum(power * value for power, value in zip(powers, v[:, at])) / sum(powers)
    y = x + mixed @ params["attention/output"]
    return y + np.maximum(y @ params["mlp/up"], 0) @ params["mlp/down"]


LAYER = models.layer_parameters(3, model=8, hidden=12)
X, G = np.random.default_rng(4).normal(size=(2, 5, 8))


def test_the_layer_is_what_its_definition_says() -> None:
    assert np.allclose(models.layer_output(LAYER, X, heads=4), slowly(LAYER, X, heads=4), rtol=1e-12)


NORMED = {**LAYER, **{name: 1 + numbers(i, X.shape[1]) / 2 for i, name in enumerate(models.GAINS)}}


@pytest.mark.parametrize(("params", "name"), [(of, name) for of in (LAYER, NORMED) for name in ("x", *of)])
def test_its_gradients_are_slopes(params: dict[str, Any], name: str) -> None:
    grads = models.layer_gradients(params, X, G, heads=4)
    assert grads.keys() == {*params, "x"}

    def loss(direction: Any, step: float) -> float:
        moved = {**params, "x": X}
        moved[name] = moved[name] + step * direction
        return float((models.layer_output(moved, moved["x"], heads=4) * G).sum())

    for seed in range(3):
        direction = np.random.default_rng(seed).normal(size=grads[name].shape)
        slope = (loss(direction, 1e-6) - loss(direction, -1e-6)) / 2e-6
        assert slope == pytest.approx((grads[name] * direction).sum(), rel=1e-6)


def test_a_norm_divides_by_the_root_of_the_mean_square() -> None:
    normed = np.stack([row * NORMED["norm_0/gain"] / ((row @ row) / row.size + 1e-6) ** 0.5 for row in X.astype(float)])
    silent = {"mlp/down": 0 * LAYER["mlp/down"]}
    of_normed = models.layer_output({**LAYER, **silent}, normed, heads=4) - normed
    assert models.layer_output({**NORMED, **silent}, X, heads=4) == pytest.approx(X + of_normed)


def test_the_reference_on_a_mesh_is_the_starter_with_a_backward() -> None:
    """So what is given is right."""
    given = methods(ENGINE_PUZZLES["MegatronMesh"].starter)
    solved = methods(REFERENCES["MegatronMesh"].read_text(encoding="utf-8"))
    assert {name for name in solved if solved[name] != given.get(name)} == {"backward", "summed"}


def methods(source: str) -> dict[str, str]:
    """Their statements, without docstrings."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    return {node.name: ast.dump(ast.Module(node.body[ast.get_docstring(node) is not None :], [])) for node in nodes}


# --- VocabParallelLoss: slopes, shifts, and large numbers -----------------------------------------------


def losses(logits: Any, targets: Any, g: Any) -> tuple[Any, Any]:
    """Results of the reference on two devices for whole logits: losses, and the gradient of the logits."""
    with launch(VocabParallelLoss, 2, words=logits.shape[1]) as devices:
        here = [{"logits": part, "targets": targets} for part in np.split(logits, 2, axis=1)]
        (loss, _), grads = devices.forward(here), devices.backward(g)
    return loss, np.concatenate([part["logits"] for part in grads], axis=1)


def test_the_gradient_of_the_logits_is_a_slope() -> None:
    rng = np.random.default_rng(5)
    logits, targets, g = rng.normal(size=(3, 6)), np.array([0, 3, 5]), np.array([1.0, -2.0, 0.5])
    _, grads = losses(logits, targets, g)
    for place in np.ndindex(3, 6):
        step = np.zeros((3, 6))
        step[place] = 1e-6
        slope = ((losses(logits + step, targets, g)[0] - losses(logits - step, targets, g)[0]) * g).sum() / 2e-6
        assert slope == pytest.approx(grads[place], abs=1e-8)


@examples(25)
@given(st.lists(st.integers(-1000, 1000), min_size=3, max_size=3))
def test_a_number_added_to_all_logits_of_a_token_changes_nothing(shift: list[int]) -> None:
    rng = np.random.default_rng(6)
    logits, targets = rng.integers(-5, 6, (3, 6)).astype(np.float32), np.array([5, 0, 2])
    g = np.ones(3, np.float32)
    for one, other in zip(
        losses(logits, targets, g), losses(logits + np.array(shift, np.float32)[:, None], targets, g)
    ):
        assert np.array_equal(one, other)


# --- Chapter `sequence`: blocks in any order give one softmax, memory does not grow, and no device waits ---


@pytest.mark.parametrize("part", [slice(3), slice(3, 6)], ids=["all tokens", "causal"])
def test_the_formulas_are_met_exactly_and_the_peak_does_not_grow(part: slice) -> None:
    peaks = set()
    for make in trials_of(ENGINE_PUZZLES["RingAttention"])[part]:
        trial = make()
        assert trial.arguments["causal"] == bool(part.start)
        performed = perform(trial, RingAttention)
        limits = dict(trial.targets or {})
        flops = FIGURES["flops"].of(performed)
        assert flops < limits.pop("flops") < 1.05 * flops, "room for a factor of numpy"
        exact = {name: limit for name, limit in limits.items() if name != "peak"}
        assert {name: FIGURES[name].of(performed) for name in exact} == exact
        peaks.add(FIGURES["peak"].of(performed))
    assert len(peaks) == 1


def test_the_first_trial_has_the_targets_shown() -> None:
    assert ring_attention(1, 4).targets == ENGINE_PUZZLES["RingAttention"].targets
    causal = causal_ring_attention(1, 4).targets
    assert causal == {**ENGINE_PUZZLES["RingAttention"].targets, "flops": 10_984}
    approved(
        "sequence",
        "the first trial has the targets shown",
        ENGINE_PUZZLES["RingAttention"].statement,
        "The flops target of",
    )


@pytest.mark.slow
@pytest.mark.parametrize("factor", ["/ 4", "/ np.float32(4)", "* np.float32(0.25)"])
def test_the_target_of_flops_leaves_room_for_any_way_to_write_the_factor(factor: str, tmp_path: Path) -> None:
    text = (SOLUTIONS / "ring_attention.py").read_text(encoding="utf-8")
    written = "* self.q.shape[1] ** -0.5"
    assert written in text
    path = tmp_path / "mine.py"
    path.write_text(text.replace(written, factor), encoding="utf-8")
    verdict = verdict_on("RingAttention", path)
    assert verdict.status == "passed", verdict.message


@pytest.mark.slow
def test_too_many_flops_are_shown_by_line(tmp_path: Path) -> None:
    text = (SOLUTIONS / "ring_attention.py").read_text(encoding="utf-8")
    path = tmp_path / "mine.py"
    changed = text.replace("powers @ v", "powers @ v + 0 * (powers @ v)")
    path.write_text(changed, encoding="utf-8")
    verdict = verdict_on("RingAttention", path)
    line = next(n for n, row in enumerate(changed.splitlines(), 1) if "0 * (powers" in row)
    assert (verdict.status, verdict.why_matters) == ("over_target", True)
    first = next(row for row in verdict.why if "%" in row)
    assert first.endswith(f"line {line}")


class Gathered(ShardedEngine):
    """All keys and values at once: the same bytes, products of matrices and results."""

    def __init__(self, causal: bool) -> None: ...

    def load_checkpoint(self, params: Any) -> None: ...
    def backward(self, grads: Any) -> Any: ...

    def forward(self, x: Any) -> Any:
        k, v = self.all_gather(x.pop("kv"), axis=1)
        scores = x["q"] @ k.T / 4
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True) @ v


@pytest.mark.parametrize(("devices", "peak"), [(2, 4_608), (4, 8_192), (8, 15_360)])
def test_gathering_sends_as_many_numbers_but_its_peak_grows(devices: int, peak: int) -> None:
    trial = ring_attention(1, devices)
    assert trial.targets is not None
    performed = perform(trial, Gathered)
    require_right(trial, performed)
    found = {name: FIGURES[name].of(performed) for name in trial.targets}
    sent, flops = (devices - 1) * 1_024, devices * (8 * PAIR // 2 + 2 * 8 * 8)  # the softmax divides the scores
    assert found == {**trial.targets, "flops": flops, "sent": sent, "messages": 0, "collectives": 1, "peak": peak}
    assert (peak > trial.targets["peak"]) == (devices > 2)


@examples(50)
@given(st.permutations(range(6)), st.integers(0, 2**32 - 1))
def test_blocks_in_any_order_make_the_same_softmax(order: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    q, k, v = rng.normal(size=(3, 12, 4)) * 5
    chunk = Queries(q, place=0)
    for i in order:
        chunk.see(k[2 * i : 2 * i + 2], v[2 * i : 2 * i + 2])
    assert np.allclose(chunk.mixed / chunk.total, attention(q, k, v), rtol=1e-5, atol=1e-6)


class InOrder(RingAttention):
    """Device i has chunks 2 i and 2 i + 1."""

    def places(self, device: int) -> tuple[int, int]:
        return 2 * device, 2 * device + 1


PAIR = 1_024
"""Flops of the products for a chunk of queries and one of keys and values."""

CORRECTION, DIVISION = 2 * 4 * 17, 2 * 8 * 16
"""Flops of a chunk's correction, and of the division by the sums at the end."""


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_early_and_late_chunks_make_all_equally_busy(devices: int) -> None:
    trial = causal_ring_attention(1, devices)
    zigzag, in_order = (perform(trial, cls).readings[-1] for cls in (RingAttention, InOrder))
    assert {meter.flops for meter in zigzag} == {(PAIR + CORRECTION) * (2 * devices + 1) + DIVISION}
    assert [meter.flops for meter in in_order] == [(PAIR + CORRECTION) * (4 * i + 3) + DIVISION for i in range(devices)]
    # Nobody waits: when the last device is done, each has worked all the time.
    assert all(meter.clock == meter.flops for meter in zigzag)


def test_what_is_not_masked_is_half_and_a_little() -> None:
    """The pairs of chunks of which any token sees any, counted in the mask."""
    for devices in (2, 4, 8):
        chunks = 2 * devices
        mask = np.tri(4 * chunks, dtype=bool).reshape(chunks, 4, chunks, 4).any(axis=(1, 3))
        rows = mask.sum(axis=1)
        assert [rows[i] + rows[chunks - 1 - i] for i in range(devices)] == [2 * devices + 1] * devices


def test_hops_are_one_less_than_devices() -> None:
    for devices in (2, 4, 8):
        meters = perform(ring_attention(3, devices), RingAttention).readings[-1]
        assert {(meter.messages, meter.sent) for meter in meters} == {(devices - 1, (devices - 1) * 1_040)}


# --- Chapter `annotated`: the targets' formulas, and that no placement of the same program moves fewer bytes ---


SLUGS = ["AnnotatedMLP", "AnnotatedMoE"]

H = '        h = mesh_split(h, self.mesh, ("data", "model"))\n'
WEIGHTS = (
    '        w0 = mesh_split(w0, self.mesh, ("data", "model"))\n'
    '        w1 = mesh_split(w1, self.mesh, ("model", "data"))\n'
)
SENT = "        sent = split(sent, 0, 4)  # so the experts are split along a row too, and only their tokens move\n"


def fewest_bytes(graph: Graph, homes: dict[str, list[TensorLayout]], output: str, result: TensorLayout) -> int:
    """Over all placements in which every device computes its share and nothing twice: what moves in all, by trying
    everything that can be said of one operator after the other. Every tensor but sources has one consumer."""
    reached: dict[str, dict[TensorLayout, int]] = {name: dict.fromkeys(some, 0) for name, some in homes.items()}
    for name, op in graph.operators.items():
        found: dict[TensorLayout, int] = {}
        every = list(candidates(graph, op))
        least_work = min(way.flops for way in every)
        for way in every:
            if way.flops > least_work:
                continue
            cost = way.moved * graph.itemsize
            for tensor, wanted in zip(op.inputs, way.inputs):
                cost += min(before + least_bytes(there, wanted) for there, before in reached[tensor].items())
            found[way.output] = min(cost, found.get(way.output, cost))
            if way.local.partial and name == output:
                direct = cost - way.moved * graph.itemsize + redistribute(way.local, result).bytes
                found[result] = min(direct, found.get(result, direct))
        reached[name] = found
    return min(before + least_bytes(there, result) for there, before in reached[output].items())


def quarters(shape: tuple[int, ...], grid: Any) -> list[TensorLayout]:
    """All layouts in which no two devices hold the same."""
    axes = range(len(grid.shape))
    found = []
    for places in product(range(len(shape)), repeat=len(axes)):
        dims = tuple(tuple(axis for axis in axes if places[axis] == dim) for dim in range(len(shape)))
        parts = [int(np.prod([grid.shape[axis] for axis in mine], dtype=int)) for mine in dims]
        if all(size % n == 0 for size, n in zip(shape, parts)):
            found.append(TensorLayout(shape, grid, dims))
    return found


def test_no_placement_of_the_two_layers_moves_fewer_bytes() -> None:
    grid = mesh(data=2, model=2)
    graph = Graph(mesh=grid)
    shapes = {"x": (64, 16), "w0": (16, 64), "w1": (64, 16)}
    for name, shape in shapes.items():
        graph.input(name, shape)
    graph.relu("z", graph.einsum("h", "x", "w0", spec="bd,df->bf"))
    graph.einsum("y", "z", "w1", spec="bf,fd->bd")
    rows = mesh_split((64, 16), grid, (("data", "model"), None))
    homes = {"x": [rows], "w0": quarters((16, 64), grid), "w1": quarters((64, 16), grid)}
    assert fewest_bytes(graph, homes, "y", rows) == 4 * ENGINE_PUZZLES["AnnotatedMLP"].targets["sent"]


def test_no_placement_of_the_experts_moves_fewer_bytes() -> None:
    row = mesh(devices=4)
    graph = Graph(mesh=row)
    mask = (4, 8, 4, 2)
    shapes = {"x": (4, 8, 16), "dispatch": mask, "combine": mask, "wi": (4, 16, 32), "wo": (4, 32, 16)}
    for name, shape in shapes.items():
        graph.input(name, shape)
    graph.einsum("sent", "dispatch", "x", spec="GSEC,GSM->EGCM")
    graph.relu("h", graph.einsum("up", "sent", "wi", spec="EGCM,EMH->EGCH"))
    graph.einsum("back", "h", "wo", spec="EGCH,EHM->EGCM")
    graph.einsum("y", "combine", "back", spec="GSEC,EGCM->GSM")
    groups = {name: [mesh_split(shapes[name], row, {0: 0})] for name in ("x", "dispatch", "combine")}
    homes = {**groups, "wi": quarters(shapes["wi"], row), "wo": quarters(shapes["wo"], row)}
    assert fewest_bytes(graph, homes, "y", groups["x"][0]) == 4 * ENGINE_PUZZLES["AnnotatedMoE"].targets["sent"]


ROWS, MODEL = ("data", "model"), (None, ("data", "model"))
WAYS = {
    "tensor parallel": (MODEL, (ROWS, None), MODEL),
    "FSDP": (ROWS, ROWS, (ROWS, None)),
    "both": (ROWS, ROWS[::-1], ROWS),
}
"""Annotations of w0, w1 and h."""


class AnyWay(AnnotatedMLP):
    """The reference's program with other annotations."""

    def __init__(self, way: str, **sizes: int) -> None:
        self.way = way
        super().__init__(**sizes)

    def program(self, x: Any, w0: Any, w1: Any) -> Any:
        x, w0, w1 = (annotate(*pair) for pair in zip((x, w0, w1), [self.mesh] * 3, ((ROWS, None), *WAYS[self.way])))
        h = annotate(np.maximum(np.einsum("bd,df->bf", x, w0), 0), self.mesh, WAYS[self.way][2])
        return annotate(np.einsum("bf,fd->bd", h, w1), self.mesh, (ROWS, None))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("batch", "hidden", "best"), [(64, 64, "both"), (16, 64, "tensor parallel"), (128, 16, "FSDP"), (96, 64, "both")]
)
def test_what_is_best_depends_on_what_weighs_more(batch: int, hidden: int, best: str) -> None:
    """Bytes that each device sends, for width d: tensor parallel 6 B d, FSDP 6 d f, both 2 d (B + f);
    less where the planner sees a cheaper way to what was annotated."""
    d = 16
    told = {"tensor parallel": 6 * batch * d, "FSDP": 6 * d * hidden, "both": 2 * d * (batch + hidden)}
    sent = {}
    trial = annotated_mlp(batch, d, hidden)
    for way in WAYS:
        with launch(AnyWay, 4, way=way, **trial.arguments) as run:
            run.load_checkpoint(trial.params)
            run.forward(list(trial.calls[0].arguments))
            (sent[way],) = {meter.sent for meter in run.meters}
    assert sent[best] == told[best]
    assert all(sent[way] <= told[way] for way in WAYS)
    assert min(sent, key=lambda way: sent[way]) == best


@pytest.mark.parametrize(("slug", "cls"), [("AnnotatedMLP", AnnotatedMLP), ("AnnotatedMoE", AnnotatedMoE)])
def test_the_same_function_is_the_program_of_one_device(slug: str, cls: Any) -> None:
    for make in trials_of(ENGINE_PUZZLES[slug]):
        trial = make()
        (call,) = trial.calls
        assert call.wanted is not None
        pieces = [one if isinstance(one, dict) else {"x": one} for one in call.arguments]
        inputs = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
        alone = cls.__new__(cls)
        alone.mesh = mesh(data=2, model=2)
        out = alone.program(**inputs, **trial.params)
        assert np.allclose(out, np.concatenate(call.wanted), rtol=0, atol=trial.tolerance * np.abs(out).max())
        assert np.count_nonzero(out) > out.size // 4
        assert np.abs(out).max() < 2**20


def test_the_reference_has_no_unnecessary_annotation() -> None:
    """Three annotations on the mesh and one for the experts, in addition to the starter's."""

    def annotated(cls: Any, inputs: dict[str, Any], parameters: dict[str, Any], grid: Any) -> TracedProgram:
        alone = cls.__new__(cls)
        alone.mesh = grid
        return follow(alone.program, inputs, parameters, grid)

    mlp = annotated(AnnotatedMLP, {"x": (64, 16)}, {"w0": (16, 64), "w1": (64, 16)}, mesh(data=2, model=2))
    assert len(mlp.annotations) == 2 + 3
    mask = {"dispatch": (4, 8, 4, 2), "combine": (4, 8, 4, 2)}
    experts = {"wi": (4, 16, 32), "wo": (4, 32, 16)}
    moe = annotated(AnnotatedMoE, {"x": (4, 8, 16), **mask}, experts, mesh(devices=4))
    assert len(moe.annotations) == 4 + 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "more", ["wi = split(wi, 0, 4)", "wo = split(wo, 0, 4)", "wi, wo = split(wi, 0, 4), split(wo, 0, 4)"]
)
def test_any_annotation_that_gives_each_device_an_expert_is_enough(more: str, tmp_path: Path) -> None:
    text = (SOLUTIONS / "annotated_moe.py").read_text()
    assert SENT in text
    path = tmp_path / "mine.py"
    path.write_text(text.replace(SENT, f"        {more}\n"))
    assert verdict_on("AnnotatedMoE", path).status == "passed"


MLP_BY_HAND = """
    def load_checkpoint(self, params):
        n, me = self.num_devices, self.device_id
        self.w0, self.w1 = (np.split(params[name], n)[me].copy() for name in ("w0", "w1"))

    def forward(self, x):
        return np.maximum(x @ self.all_gather(self.w0), 0) @ self.all_gather(self.w1)
"""

MOE_BY_HAND = """
    def load_checkpoint(self, params):
        n, me = self.num_devices, self.device_id
        self.wi, self.wo = (np.split(params[name], n)[me].copy() for name in ("wi", "wo"))

    def forward(self, pieces):
        sent = self.all_to_all(np.einsum("GSEC,GSM->EGCM", pieces["dispatch"], pieces["x"])[:, 0])
        h = np.maximum(np.einsum("gCM,MH->gCH", sent, self.wi[0]), 0)
        back = self.all_to_all(np.einsum("gCH,HM->gCM", h, self.wo[0]))
        return np.einsum("GSEC,EGCM->GSM", pieces["combine"], back[:, None])
"""

BY_HAND = {
    "AnnotatedMLP": ("annotated_mlp", (WEIGHTS, H), MLP_BY_HAND),
    "AnnotatedMoE": ("annotated_moe", (SENT,), MOE_BY_HAND),
}
"""The reference's file, the annotations that are left out, and methods that move the arrays themselves."""


@pytest.mark.parametrize("slug", SLUGS)
def test_a_class_that_moves_its_arrays_by_hand_is_judged_by_its_annotations(slug: str, tmp_path: Path) -> None:
    file, annotations, methods = BY_HAND[slug]
    text = (SOLUTIONS / f"{file}.py").read_text(encoding="utf-8")
    for annotation in annotations:
        assert annotation in text
        text = text.replace(annotation, "")
    path = tmp_path / "mine.py"
    path.write_text(f"{text.partition('    def load_checkpoint')[0]}{methods}", encoding="utf-8")
    verdict = verdict_on(slug, path)
    assert (verdict.status, verdict.stars) == ("over_target", 1)
    assert verdict.figures["weights"] == 4 * ENGINE_PUZZLES[slug].targets["weights"]


def test_a_class_without_the_program_is_told_what_the_judge_runs(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    text = (SOLUTIONS / "annotated_mlp.py").read_text(encoding="utf-8")
    path.write_text(text.replace("program", "model"), encoding="utf-8")
    assert "`program`" in verdict_on("AnnotatedMLP", path).message
