"""Traced numpy programs: the graph computes what the function does, and unsupported programs are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lib.layout import LayoutError, mesh
from lib.layout.spmd import follow, mesh_split, replicate, split
from tests.support.layout_strategies import numbers

SHAPES = {"x": (4, 8), "w": (8, 8), "b": (8,)}
GRID = mesh(data=2, model=2)

PROGRAMS: dict[str, Callable[..., Any]] = {
    "einsum": lambda x, w, b: np.einsum("id,df,if->f", x, w, x),
    "matmul and add": lambda x, w, b: x @ w + b,
    "a bias first": lambda x, w, b: np.add(np.matmul(x, w), b),
    "relu": lambda x, w, b: np.maximum(x @ w, 0),
    "sums": lambda x, w, b: np.sum(x @ w, axis=0) + w.sum(1) + x.reshape(8, 4).sum(axis=-1),
    "transposed": lambda x, w, b: np.transpose(x.T, (1, 0)) @ w.transpose(),
    "reshaped": lambda x, w, b: np.reshape(x, (2, 2, 8)) @ w.reshape((8, 8)),
    "annotated": lambda x, w, b: replicate(split(mesh_split(x, GRID, ("data", None)) @ w, 1, 4) + b),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_graph_is_the_function(name: str) -> None:
    values = {source: numbers(shape) for source, shape in SHAPES.items()}
    program = follow(PROGRAMS[name], {"x": SHAPES["x"]}, {"w": SHAPES["w"], "b": SHAPES["b"]}, GRID)
    np.testing.assert_array_equal(program.graph.run(values)[program.output], PROGRAMS[name](**values))


def test_annotations_leave_arrays_alone_and_a_second_one_moves_a_copy() -> None:
    x = numbers((4, 8))
    assert mesh_split(x, GRID, ("data", None)) is x
    assert split(x, 0, 2) is replicate(x) is x
    program = follow(lambda x: np.maximum(replicate(split(x, 0, 4)), 0), {"x": (4, 8)}, {}, GRID)
    assert {name: str(layout) for name, layout in program.annotations.items()} == {
        "x": "[data+model, -] on 2x2",
        "reshape1": "[-, -] on 2x2",
    }
    assert program.copies == {"reshape1"}


def test_split_finds_the_axis_with_so_many_devices() -> None:
    wide = mesh(data=2, model=4)
    for parts, axis in ((2, "data"), (4, "model"), (8, "data+model")):
        program = follow(lambda x, n=parts: split(x, 1, n) + x, {"x": (4, 8)}, {}, wide)
        assert str(program.annotations["x"]) == f"[-, {axis}] on 2x4"


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "an unknown function": (
        lambda x, w, b: np.exp(x),
        "the planner does not support numpy.exp with these arguments; it supports einsum, @, +, maximum(x, 0), sum "
        "over one",
    ),
    "another maximum": (
        lambda x, w, b: np.maximum(x, 1),
        "the planner does not support numpy.maximum with these arguments",
    ),
    "an unknown function of arrays": (lambda x, w, b: np.sort(x), "the planner does not support numpy.sort"),
    "an array that is no input": (
        lambda x, w, b: x + np.ones(8),
        "'x' is combined with an array of shape (8,), which is not part of the program",
    ),
    "a number": (lambda x, w, b: x + 1, "'x' is combined with 1, which is not part"),
    "a question": (
        lambda x, w, b: x if x.sum(0) else w,
        "'reduce_sum1' has no values yet",
    ),
    "an index": (lambda x, w, b: x[0], "'x' is indexed with 0; the planner supports einsum, @, +"),
    "numbers": (lambda x, w, b: np.asarray(x), "'x' has no values yet; the planner supports einsum"),
    "shapes that do not fit": (lambda x, w, b: x @ x, "matmul1: the shapes (4, 8) and (4, 8) do not fit: 8 columns"),
    "nothing returned": (
        lambda x, w, b: None,
        "the program must return one tensor that it has computed; it returned",
    ),
    "an input returned": (
        lambda x, w, b: x,
        "the program must return one tensor that it has computed; it returned tensor 'x' of",
    ),
    "another mesh": (
        lambda x, w, b: mesh_split(x, mesh(data=4), ("data", None)),
        "'x' is annotated on a mesh 4; the program is planned for 2x2",
    ),
    "which axis": (
        lambda x, w, b: split(x, 0, 2),
        "'x' cannot be split into 2 parts: of the axes of the mesh 2x2 2 have that many devices; use mesh_split",
    ),
    "no axis": (lambda x, w, b: split(x, 0, 3), "'x' cannot be split into 3 parts: of the axes of the mesh 2x2 none "),
    "unequal parts": (
        lambda x, w, b: mesh_split(x @ w, GRID, (("data", "model"), None)).reshape(2, 16) @ split(w, 0, 5),
        "'w' cannot be split into 5 parts",
    ),
    "no such dimension": (
        lambda x, w, b: split(x, 2, 4),
        "'x' of shape (4, 8): there is no dimension 2: the tensor of shape (4, 8) has 2",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_is_refused_by_the_name_of_the_tensor(what: str) -> None:
    does, wanted = REFUSED[what]
    with pytest.raises(LayoutError) as caught:
        follow(does, {"x": SHAPES["x"]}, {"w": SHAPES["w"], "b": SHAPES["b"]}, GRID)
    assert str(caught.value).startswith(wanted), caught.value
