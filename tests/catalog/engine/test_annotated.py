"""Chapter `annotated`: the targets' formulas, and that no placement of the same program moves fewer bytes."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lib.engine import launch
from lib.layout import Graph, TensorLayout, candidates, least_bytes, mesh, mesh_split, redistribute
from lib.layout.spmd import TracedProgram, follow
from lib.layout.spmd import mesh_split as annotate
from puzzles.catalog.engine import ENGINE_PUZZLES, trials_of
from puzzles.content.engine.annotated.trials import annotated_mlp
from solutions.engine.annotated_mlp import AnnotatedMLP
from solutions.engine.annotated_moe import AnnotatedMoE
from tests.support.engine_trials import SOLUTIONS, verdict_on

pytestmark = pytest.mark.usefixtures("in_this_process")

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
