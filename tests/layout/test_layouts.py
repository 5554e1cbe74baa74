"""Device Matrix, Tensor Map and Tensor Layout: which device holds what, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given

from lib.layout import (
    DeviceMatrix,
    Graph,
    LayoutError,
    TensorLayout,
    cut,
    distribute,
    join,
    mesh,
    mesh_split,
    replicate,
    same_placement,
    shard,
    split,
)
from lib.layout.examples import one_matmul
from tests.support.examples import examples
from tests.support.layout_strategies import eight_devices, numbers, pairs
from tests.support.refusals import Refused


def test_the_matmul_of_the_documentation_has_the_documented_pieces():
    placed = distribute(one_matmul(devices=8).operators["matmul"], ((2, 1), (1, 4)), 8)
    x, w = placed.inputs
    assert x.matrix == w.matrix == DeviceMatrix((2, 4))
    assert (x.tensor_map, w.tensor_map) == (((0,), ()), ((), (1,)))
    assert [x.part(device)[0] for device in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [w.part(device)[1] for device in range(8)] == [0, 1, 2, 3, 0, 1, 2, 3]


def test_every_spelling_of_a_layout_is_the_same_placement():
    tensor, grid = SimpleNamespace(shape=(8, 8)), mesh(data=2, model=4)
    assert same_placement(mesh_split(tensor, grid, ("model", -1)), mesh_split(tensor, grid, (1, None)))
    assert same_placement(mesh_split(tensor, grid, {1: "data"}), split(tensor, 1, 2, devices=8))
    assert same_placement(mesh_split(tensor, mesh(a=8), (-1, -1)), replicate(tensor, 8))
    assert same_placement(split(tensor, 0, 4), shard(tensor, [[0], [1], [2], [3]]))
    assert mesh_split(tensor, grid, (("data", "model"), -1)).part(5) == (5, 0)
    assert mesh_split(tensor, grid, (("model", "data"), -1)).part(5) == (3, 0)
    assert shard(tensor, [[3, 1], [0, 2]]).part(0) == (1, 0)


def test_layouts_are_frozen_and_hashable_and_axes_of_one_device_do_not_matter():
    a = TensorLayout((4,), DeviceMatrix((2, 1)), ((0, 1),))
    assert {a: 1}[TensorLayout((4,), DeviceMatrix((2, 1)), (0,))] == 1
    with pytest.raises(AttributeError):
        a.shape = (5,)
    assert str(mesh_split((8, 8), mesh(data=2, model=4), ("data", -1))) == "[data, -] on 2x4"


def test_a_matrix_has_49_layouts_on_a_cube_of_devices():
    assert len(eight_devices()) == 49


@examples(60)
@given(pairs(partial=True))
def test_cutting_and_joining_is_the_identity(two):
    layout = two[0]
    tensor = numbers(layout.shape)
    np.testing.assert_array_equal(join(cut(tensor, layout), layout), tensor)


def test_copies_that_differ_are_not_joined():
    layout = replicate((2,), 2)
    with Refused("pieces differ", first=0, device=1, error=LayoutError):
        join({0: np.zeros(2), 1: np.ones(2)}, layout)
    nothing = np.array([np.nan, 1.0])
    np.testing.assert_array_equal(join({0: nothing, 1: nothing.copy()}, layout), nothing)


GRID = DeviceMatrix((2, 4))

REFUSED = [
    (lambda: TensorLayout((8, 8), GRID, ((0,), (0,))), r"axis 0 of the device matrix 2x4 is named 2 times"),
    (lambda: TensorLayout((8, 8), GRID, ((0,), ()), (0,)), r"axis 0 of the device matrix 2x4 is named 2 times"),
    (lambda: TensorLayout((8, 8), GRID, ((2,), ())), r"there is no axis 2: the device matrix 2x4 has 2 axes"),
    (lambda: TensorLayout((8, 8), GRID, ((0,),)), r"the tensor map has 1 entries; the tensor of shape \(8, 8\) has 2"),
    (lambda: TensorLayout((0,), GRID, ((),)), r"is at least 1; got \(0,\)"),
    (lambda: TensorLayout((8,), GRID, ((),)).part(8), r"no device 8: the device matrix 2x4 has 0-7"),
    (lambda: DeviceMatrix((2, 0)), r"axes .* positive whole numbers; got \(2, 0\)"),
    (lambda: DeviceMatrix((2,), (0, 2)), r"has places for devices 0-1, each once; got 2 devices"),
    (lambda: DeviceMatrix((2,), names=("a", "b")), r"needs 1 different axis names"),
    (lambda: mesh_split((8,), mesh(a=2), ("b",)), r"no axis 'b'; it has 0 \(a\)"),
    (lambda: mesh_split((8,), mesh(a=2), {1: "a"}), r"no dimension 1: the tensor of shape \(8,\) has 1"),
    (lambda: split((8,), 1, 2), r"no dimension 1: the tensor of shape \(8,\) has 1"),
    (lambda: split((8,), 0, 3, devices=4), "4 devices cannot hold 3 partitions"),
    (lambda: shard((8, 8), [0, 1]), r"the device assignment has 1 dimensions, the tensor of shape \(8, 8\) has 2"),
    (lambda: shard((8, 8), [[0, 1], [2]]), "rows of equal length"),
    (lambda: shard((8,), [0, 0]), "2 devices, 1 of them different"),
    (lambda: cut(np.zeros(3), replicate((2,), 2)), r"the tensor has shape \(3,\), the layout is for \(2,\)"),
    (lambda: join({0: np.zeros(2)}, replicate((2,), 2)), r"has devices 0-1; got pieces for \[0\]"),
    (lambda: join({0: np.zeros(2), 1: np.zeros(1)}, replicate((2,), 2)), r"device 1 holds a piece of shape \(1,\)"),
    (lambda: TensorLayout(8, GRID, (0,)), "the shape of a tensor is a tuple of whole numbers; got 8"),
    (lambda: TensorLayout((8,), GRID, ("x",)), "an entry of a tensor map is the number of an axis.*; got 'x'"),
    (lambda: TensorLayout((8,), GRID, (0.5,)), "an entry of a tensor map is the number of an axis.*; got 0.5"),
    (lambda: DeviceMatrix(8), "axes .* positive whole numbers; got 8"),
    (lambda: mesh_split((8,), (2, 4), (0,)), r"takes a mesh.*; got \(2, 4\)"),
    (lambda: mesh_split((8,), mesh(a=2), (0.5,)), "mapped to a mesh axis by name or number, .*; got 0.5"),
    (lambda: mesh_split(8, mesh(a=2), ()), "a tensor or its shape; got 8"),
    (lambda: mesh_split((8,), mesh(a=2), None), r"one mesh axis per dimension, such as \('data', -1\); got None"),
    (lambda: mesh_split(None, mesh(a=2), ("a",)), "a tensor or its shape; got None"),
    (lambda: replicate(None, 8), "a tensor or its shape; got None"),
    (lambda: replicate((8,), "4"), "devices is a whole number; got '4'"),
    (lambda: split((8,), None, 2), "split takes the number of one dimension; got None"),
    (lambda: split((8,), 0, 2.0), "whole number of partitions; got 2.0"),
    (lambda: cut(None, replicate((2,), 2)), r"the tensor has shape \(\), the layout is for \(2,\)"),
    (lambda: join(None, replicate((2,), 2)), "arrays by device number; got NoneType"),
    (lambda: Graph(mesh=(2, 4)), r"a graph takes a mesh.*; got \(2, 4\)"),
    (lambda: Graph(8, itemsize="4"), "a whole number of bytes, 1 or more; got '4'"),
    (lambda: Graph(8, itemsize=0), "a whole number of bytes, 1 or more; got 0"),
    (lambda: Graph(8).input(None, (2,)), "name of a tensor is a string; got None"),
    (lambda: Graph(8).relu("r", ["x"]), r"there is no tensor named '\['x'\]'; there are none"),
    (lambda: Graph(), "exactly one"),
    (lambda: Graph(True), "1 device or more; got True"),
    (lambda: Graph(8, itemsize=-4), "whole number of bytes, 1 or more; got -4"),
    (lambda: Graph(8, itemsize=True), "whole number of bytes, 1 or more; got True"),
    (lambda: DeviceMatrix((True, 2)), "positive whole numbers; got"),
    (lambda: Graph(2.5), "1 device or more; got 2.5"),
    (lambda: Graph(devices=0), "1 device or more; got 0"),
]


@pytest.mark.parametrize(("build", "sentence"), REFUSED)
def test_what_cannot_be_is_refused_with_the_numbers(build, sentence):
    with pytest.raises(LayoutError, match=sentence) as refusal:
        build()
    assert "\n" not in str(refusal.value)
