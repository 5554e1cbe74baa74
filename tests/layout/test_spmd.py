"""Annotated programs on the engine, beside XLA's partitioner, and plans as code."""

import json
import re
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docs.generate import xla
from lib import RuleError
from lib.engine import ShardedEngine, launch
from lib.layout import Graph, LayoutError, code_of, join, mesh, plan, propagate
from lib.layout.code import ELEMENTWISE
from lib.layout.examples import feed_forward
from lib.layout.operators import GRADS, KINDS, OPTIMIZER
from lib.layout.spmd import Spmd, mesh_split
from lib.layout.xla import collectives, group_size
from tests.layout.test_propagation import CASES
from tests.oracles.xla_partitioner import measured
from tests.screens.texts import approved_refusal
from tests.support.examples import examples
from tests.support.layout_strategies import numbers
from tests.support.refusals import Refused
from tests.test_imports import ROOT

GRID = mesh(data=2, model=2)
SHAPES = {"x": (8, 4), "w0": (4, 16), "w1": (16, 4)}


class Annotated(ShardedEngine):
    """Two layers, with annotations by name. Inputs come in pieces, with the layouts in `homes`."""

    def __init__(self, annotations: dict[str, Any], grid: Any = GRID) -> None:
        self.annotations = annotations
        self.spmd = Spmd(self, self.program, {"x": SHAPES["x"]}, {name: SHAPES[name] for name in ("w0", "w1")}, grid)

    def program(self, x: Any, w0: Any, w1: Any) -> Any:
        x, w0, w1 = (self.said(*pair) for pair in (("x", x), ("w0", w0), ("w1", w1)))
        h = self.said("h", np.maximum(np.einsum("bd,df->bf", x, w0), 0))
        return self.said("y", np.einsum("bf,fd->bd", h, w1))

    def said(self, name: str, tensor: Any) -> Any:
        for dims in self.annotations.get(name, ()):
            tensor = mesh_split(tensor, GRID, dims)
        return tensor

    def load_checkpoint(self, params: Any) -> None:
        self.spmd.load_checkpoint(params)

    def forward(self, x: Any) -> Any:
        return self.spmd.forward({"x": x[self.spmd.plan.storage_layouts["x"].box(self.device_id)].copy()})

    def backward(self, grads: Any) -> Any:
        return self.spmd


DIMS = st.sampled_from(
    [(None, None), ("data", None), (None, "model"), ("data", "model"), ("model", "data"), (("data", "model"), None)]
)


@examples(60)
@given(
    st.dictionaries(st.sampled_from(["x", "w0", "w1", "h", "y"]), st.lists(DIMS, min_size=1, max_size=2), min_size=1)
)
def test_annotations_change_no_numbers_and_the_bytes_are_predicted(annotations: dict[str, Any]) -> None:
    values = {name: numbers(shape).astype(np.float32) for name, shape in SHAPES.items()}
    alone = np.maximum(values["x"] @ values["w0"], 0) @ values["w1"]
    with launch(Annotated, 4, annotations) as run:
        run.load_checkpoint({name: values[name] for name in ("w0", "w1")})
        spmd = run.backward(None)[0]
        homes = [spmd.plan.storage_layouts[name] for name in ("w0", "w1")]
        assert [meter.live for meter in run.meters] == [sum(home.elements * 4 for home in homes)] * 4
        pieces = dict(enumerate(run.forward(values["x"])))
        meters = run.meters
    np.testing.assert_array_equal(join(pieces, spmd.plan.layout(spmd.program.output)), alone)
    assert [meter.sent for meter in meters] == list(spmd.plan.sent)
    assert {meter.flops for meter in meters} == {
        sum(op.flops for op in spmd.plan.operators.values() if op.operator.kind == "einsum")
    }


def test_what_is_no_longer_needed_is_freed() -> None:
    """A chain of products of (64, 64): two of them are there at a time, however long it is."""

    class Chain(Annotated):
        def __init__(self, length: int) -> None:
            self.length = length
            self.spmd = Spmd(self, self.program, {"x": (64, 64)}, {"w0": (64, 64)})

        def program(self, x: Any, w0: Any, w1: Any = None) -> Any:
            x = mesh_split(x, mesh(devices=1), ("devices", None))
            for _ in range(self.length):
                x = x @ w0
            return x

    def peak(length: int) -> int:
        with launch(Chain, 1, length) as run:
            run.load_checkpoint({"w0": np.ones((64, 64), np.float32)})
            run.forward(np.ones((64, 64), np.float32))
            return run.meters[0].peak

    assert peak(3) == peak(9)


class Returning(ShardedEngine):
    """Operators on (8, 8) tensors, by kind and operands; any of them may be the result, also one that others read."""

    def __init__(self, operators: list[tuple[str, int, int]], annotations: dict[int, Any], result: int) -> None:
        self.operators, self.annotations, self.result = operators, annotations, result
        self.spmd = Spmd(self, self.program, {"x": (8, 8)}, {"w": (8, 8)}, GRID)

    def program(self, x: Any, w: Any) -> Any:
        tensors = [self.said(0, x), self.said(1, w)]
        for i, (kind, a, b) in enumerate(self.operators, start=2):
            one, two = tensors[a % i], tensors[b % i]
            made = {"@": lambda a, b: a @ b, "+": lambda a, b: a + b, "relu": lambda a, b: np.maximum(a, 0)}[kind]
            tensors.append(self.said(i, made(one, two)))
        return tensors[2 + self.result % len(self.operators)]

    def said(self, number: int, tensor: Any) -> Any:
        return mesh_split(tensor, GRID, self.annotations[number]) if number in self.annotations else tensor

    def load_checkpoint(self, params: Any) -> None:
        self.spmd.load_checkpoint(params)

    def forward(self, x: Any) -> Any:
        return self.spmd.forward({"x": x})

    def backward(self, grads: Any) -> Any:
        return self.spmd


def test_masked_pieces_are_refused() -> None:
    class Alone(Returning):
        def forward(self, x: Any) -> Any:
            return self.spmd.forward({"x": np.ma.masked_less(x, 1)})

    with launch(Alone, 4, [("+", 0, 1)], {0: ("data", None)}, 0) as run:
        run.load_checkpoint({"w": np.ones((8, 8))})
        with approved_refusal("spmd", "masked pieces are refused", RuleError):
            run.forward(np.ones(run.backward(0)[0].plan.storage_layouts["x"].local_shape))


def assert_the_peak_is_measured(*program: Any) -> Spmd:
    values = {name: (numbers((8, 8)) % 3).astype(np.float32) for name in ("x", "w")}
    with launch(Returning, 4, *program) as run:
        run.load_checkpoint({"w": values["w"]})
        spmd: Spmd = run.backward(None)[0]
        run.forward([values["x"][spmd.plan.storage_layouts["x"].box(device)].copy() for device in range(4)])
        assert [meter.peak for meter in run.meters] == spmd.plan.timeline.peaks.tolist()
    return spmd


def test_a_result_that_is_read_again_is_held_to_the_end() -> None:
    """y = x @ w is returned, and two more products are computed from it."""
    spmd = assert_the_peak_is_measured([("@", 0, 1), ("@", 2, 2), ("@", 3, 3)], {0: ("data", None)}, 0)
    # w, then halves of x, of the result and of the last product, which is gathered: its pieces, and the whole
    assert spmd.plan.peak == 4 * (64 + 3 * 32 + 2 * 32 + 64)
    said = f"at most {spmd.plan.peak:,} bytes at a time on a device, when 'matmul3' moves 'matmul2'"
    assert spmd.explain().splitlines()[-2] == said


@examples(60)
@given(
    st.lists(
        st.tuples(st.sampled_from(["@", "+", "relu"]), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=5
    ),
    st.dictionaries(st.integers(0, 6), DIMS, min_size=1),
    st.integers(0, 9),
)
def test_the_peak_of_any_program_is_measured(
    operators: list[tuple[str, int, int]], annotations: dict[int, Any], result: int
) -> None:
    assert_the_peak_is_measured(operators, {0: (None, None), **annotations}, result)


def test_moving_on_purpose_is_no_conflict_and_a_plan_can_be_read() -> None:
    with launch(Annotated, 4, {"x": [("data", None), (None, None)], "w0": [(None, "model")]}) as run:
        spmd = run.backward(None)[0]
    assert spmd.conflicts == []
    assert "reshape1: reshape" in spmd.explain()
    assert spmd.explain().endswith("bytes on each device")


def test_a_mesh_of_another_size_is_refused() -> None:
    with Refused("other number of devices", mesh="2x2", devices="4 devices", run=2, error=LayoutError):
        launch(Annotated, 2, {"x": [("data", None)]})


def test_pieces_of_the_wrong_shape_and_parameters_that_are_not_there_are_refused() -> None:
    class Whole(Annotated):
        def forward(self, x: Any) -> Any:
            return self.spmd.forward({"x": x})

    class Nothing(Annotated):
        def forward(self, x: Any) -> Any:
            return self.spmd.forward({})

    params = {name: numbers(SHAPES[name]) for name in ("w0", "w1")}
    for cls, wanted in (
        (Whole, r"a device has a piece of shape \(4, 4\) of input 'x'; got \(8, 4\)"),
        (Nothing, "input 'x' is missing; parameters come with load_checkpoint, inputs with forward"),
    ):
        with launch(cls, 4, {"x": [("data", None)]}) as run:
            run.load_checkpoint(params)
            with pytest.raises(LayoutError, match=wanted):
                run.forward(np.ones((8, 4)))
    with (
        launch(Annotated, 4, {"x": [("data", None)]}) as run,
        pytest.raises(LayoutError, match="parameter 'w0' is missing"),
    ):
        run.forward(np.ones((8, 4)))


# === What XLA's partitioner moves ===


LINES = {
    "%r = f32[32,64]{1,0} all-reduce(%d), channel_id=1, replica_groups={{0,1,2,3},{4,5,6,7}}, to_apply=%add": 98304,
    "%r = f32[32,64]{1,0} all-reduce(%d), channel_id=1, replica_groups=[2,4]<=[8], use_global_device_ids=true": 98304,
    "%r = (f32[4]{0}, f32[4]{0}) all-reduce(%a, %b), replica_groups={}, to_apply=%add": 2 * 7 * 32,
    "ROOT %g = bf16[64,64]{0,1} all-gather(%b), replica_groups=[2,4]<=[4,2]T(1,0), dimensions={1}": 2 * 3 * 64 * 64 * 2,
    "%s = f32[16,64]{1,0} reduce-scatter(%d), replica_groups={{0,1},{2,3},{4,5},{6,7}}, dimensions={0}": 4 * 2 * 4096,
    "%a = (f32[1,16]{1,0}, f32[1,16]{1,0}, f32[2,16]{1,0}) all-to-all(%a, %b, %c, %d), "
    "replica_groups=mesh['axis_0'=4,'axis_1'=1,'axis_2'=2], device_ids=([2,4]T(1,0)) {'axis_0'}": 2 * 3 * 256,
    "%p = s32[16]{0} collective-permute(%x), source_target_pairs={{0,0},{1,4},{4,1}}, metadata={}": 2 * 64,
    "%f = f32[32,64]{1,0} fusion(%all-reduce.1), kind=kLoop, calls=%fused": None,
}  # fmt: skip


@pytest.mark.parametrize("line", LINES)
def test_bytes_of_compiled_collectives(line: str) -> None:
    assert [sum(each.sent) for each in collectives(line, 8)] == ([] if LINES[line] is None else [LINES[line]])


def test_collectives_whose_bytes_are_unknown_are_refused() -> None:
    for line, why in {
        "%r = f32[4]{0} all-reduce-start(%d), replica_groups={{0,1}}": "cannot be counted",
        "%r = f32[4]{0} ragged-all-to-all(%d), replica_groups={{0,1}}": "cannot be counted",
        "%r = f32[4]{0} all-reduce(%d), replica_groups={{0,1},{2}}": "different sizes",
        "%r = f32[4]{0} all-reduce(%d), replica_groups=other": "unknown form",
    }.items():
        with pytest.raises(ValueError, match=why):
            collectives(line, 8)
    assert group_size("replica_groups=mesh['a'=8] {'a':(2)4}", 8) == 4, "a part of an axis"


needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed: pip install -e '.[jax]'")


@pytest.mark.slow
@needs_jax
def test_the_page_is_what_is_measured() -> None:
    shown = xla.FILE.read_text(encoding="utf-8")
    found = measured()
    if f"with jax {found['jax']}:" in shown:
        assert xla.untimed(shown) == xla.untimed(xla.page(found)), "out of date: make docs"
    for each in found["rows"]:  # with another version, only the plans have to be as shown
        assert f"| {' | '.join(xla.row(each)[:2])} |" in shown, "out of date: make docs"


@needs_jax
def test_the_python_of_the_page_prints_what_is_shown() -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", xla.HEAD, re.MULTILINE | re.DOTALL)
    (text,) = re.findall(r"^```text\n(.*?)^```", xla.HEAD, re.MULTILINE | re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == text, done.stderr


def test_without_jax_the_page_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(xla, "find_spec", lambda name: None)
    before = xla.FILE.stat().st_mtime_ns
    xla.main()
    assert "jax is not installed" in capsys.readouterr().err
    assert xla.FILE.stat().st_mtime_ns == before


# === Plans as code ===


@pytest.fixture(scope="module")
def tensor_parallel():
    build, layouts, _ = CASES["tensor parallel, x and result by rows"]
    return plan(build(), layouts=layouts)


@pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed: pip install -e '.[jax]'")
def test_programs_of_jax_move_what_is_predicted_on_eight_devices() -> None:
    command = [sys.executable, "-m", "tests.support.plans_in_jax"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert found.pop("embedding") == [73_728, 73_728]
    assert found.pop("exchange") == [12_288, 16_384], "an exchange, as named collectives"
    assert found.pop("rest_of_the_kinds") == [3_968, 4_416], "JAX scatters no maximum"
    for name in ("step_of_every_kind", "experts"):
        assert len(set(found.pop(name))) == 1
    assert found == {name: [least, least] for name, (_, _, least) in CASES.items()}


def test_every_kind_of_operator_has_code_in_jax() -> None:
    assert {*KINDS, *GRADS, *OPTIMIZER, "softmax_grad"} == {*ELEMENTWISE, "matmul"}


def test_a_program_of_jax_has_specifications_and_collectives(tensor_parallel) -> None:
    text = code_of(tensor_parallel, "jax")
    assert "    'x': P(('data', 'model'), None)," in text
    assert "    'w1': P(None, 'model')," in text
    assert "lax.all_gather(t3_0, ('model',), axis=0, tiled=True)" in text
    assert "lax.psum_scatter(t5, ('model',), scatter_dimension=0, tiled=True)" in text
    compile(text, "plan", "exec")


def test_json_has_layouts_moves_and_costs(tensor_parallel) -> None:
    data = json.loads(code_of(tensor_parallel, "json"))
    assert data["mesh"] == {"data": 2, "model": 4}
    assert data["tensors"]["w1"]["layout"] == {"split": [[], ["model"]], "piece": [64, 64]}
    assert data["moves"] == [{"tensor": "x", "for": "up", "steps": [{"name": "all-gather", "bytes": 98_304}]}]
    assert data["sums"] == [{"tensor": "out", "steps": [{"name": "reduce-scatter", "bytes": 98_304}]}]
    assert (data["bytes"], data["memory"]) == (tensor_parallel.bytes, tensor_parallel.memory)


def test_what_cannot_be_written_is_refused(tensor_parallel) -> None:
    with Refused("no such framework", framework="jaxx", error=LayoutError):
        code_of(tensor_parallel, "jaxx")
    with approved_refusal("code", "what cannot be written is refused", LayoutError):
        code_of(plan(feed_forward()), "jax")
    uneven = Graph(mesh=mesh(data=2), uneven=True)
    uneven.relu("y", uneven.input("x", (3, 4)))
    uneven.shard("y", ((2, 1),))
    with approved_refusal("code", "what cannot be written is refused, 2", LayoutError):
        code_of(propagate(uneven), "jax")
