"""Annotated programs on the engine: the same numbers for any annotations, and the bytes that the plan predicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.engine import ShardedEngine, launch
from lib.layout import LayoutError, join, mesh
from lib.layout.spmd import Spmd, mesh_split
from tests.support.examples import examples
from tests.support.layout_strategies import numbers

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
        return self.spmd.forward({"x": x[self.spmd.plan.homes["x"].box(self.device_id)].copy()})

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
        homes = [spmd.plan.homes[name] for name in ("w0", "w1")]
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


def test_moving_on_purpose_is_no_conflict_and_a_plan_can_be_read() -> None:
    with launch(Annotated, 4, {"x": [("data", None), (None, None)], "w0": [(None, "model")]}) as run:
        spmd = run.backward(None)[0]
    assert spmd.conflicts == []
    assert "reshape1: reshape" in spmd.explain()
    assert spmd.explain().endswith("bytes on each device")


def test_a_mesh_of_another_size_is_refused() -> None:
    with pytest.raises(LayoutError, match="the mesh 2x2 has 4 devices; there are 2"):
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
