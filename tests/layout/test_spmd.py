"""Annotated programs on the engine: the same numbers for any annotations, and the bytes that the plan predicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import RuleError
from lib.engine import ShardedEngine, launch
from lib.layout import LayoutError, join, mesh
from lib.layout.spmd import Spmd, mesh_split
from tests.screens.texts import approved_refusal
from tests.support.examples import examples
from tests.support.layout_strategies import numbers
from tests.support.refusals import Refused

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
