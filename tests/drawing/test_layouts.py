"""Pictures of layouts, redistributions and plans show the right facts."""

from __future__ import annotations

import ast

import numpy as np
import pytest
from hypothesis import given

import lib.layout
from drawing import svg
from drawing.layout_graph import draw_plan
from drawing.layout_tensor import draw_layout, draw_redistribution, held_part, real_part
from drawing.palette import IDLE
from drawing.pen import short_text
from lib.layout import LayoutError, TensorLayout, mesh, mesh_split, propagate, redistribute
from lib.layout.examples import attention, feed_forward
from tests.screens.texts import approved, approved_refusal
from tests.support.examples import examples
from tests.support.layout_strategies import pairs
from tests.support.svg import tips
from tests.test_imports import ROOT

GRID = mesh(data=2, model=4)


def test_a_layout_is_drawn_with_the_holders_of_each_piece():
    told = tips(draw_layout(mesh_split((64, 64), GRID, ("data", -1))))
    approved("layouts", "a layout is drawn with the holders of each piece", told[:2])
    approved("layouts", "a layout is drawn with the holders of each piece, 2", told[2:4])


def test_layouts_of_any_number_of_dimensions_are_drawn():
    for shape in ((), (8,), (2, 8, 8)):
        layout = TensorLayout(shape, GRID, ((),) * len(shape))
        assert "on each of 8" in svg(draw_layout(layout))
    assert "partial over model" in svg(draw_layout(TensorLayout((4,), GRID, ((0,),), (1,))))


def test_a_redistribution_is_drawn_message_by_message():
    source, target = mesh_split((64, 64), GRID, ("data", "model")), mesh_split((64, 64), GRID, ("data", -1))
    told = tips(draw_redistribution(redistribute(source, target)))
    assert len(told) == 8 * 3
    approved("layouts", "a redistribution is drawn message by message", told[0])


@examples(60)
@given(pairs(partial=True))
def test_what_is_drawn_is_what_is_sent_and_received(two):
    for step in redistribute(*two).named_steps:
        table = step.traffic()
        np.testing.assert_array_equal(table.sum(axis=1), step.sent)
        np.testing.assert_array_equal(table.sum(axis=0), step.received)
        assert step.total == table.sum()
        assert table.trace() == 0


def test_a_plan_is_drawn_with_what_its_edges_pay():
    graph = feed_forward()
    graph.shard("matmul1", ((2, 1), (1, 4)))
    graph.shard("relu", ((8, 1),))
    drawn = svg(draw_plan(propagate(graph), "FFN"))
    assert "all-to-all, 12,288 bytes" in drawn
    approved("layouts", "a plan is drawn with what its edges pay", drawn, "12,288 bytes moved, 39,232")
    graph = attention()
    graph.shard("q", ((1, 1, 2), (2, 2)))
    assert "x: all-to-all, 32,768 bytes" in svg(draw_plan(propagate(graph)))


def test_pictures_take_only_what_the_layout_track_exports():
    for path in (ROOT / "drawing").glob("layout_*.py"):
        nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        taken = [(node.module, alias.name) for node in nodes if node.level == 0 for alias in node.names]
        assert all(name in lib.layout.__all__ for module, name in taken if module == "lib.layout"), path.name
        assert not [module for module, _ in taken if module.startswith("lib.layout.")], path.name


def test_pictures_have_limits():
    many = mesh(a=128)
    with approved_refusal("layouts", "pictures have limits", LayoutError):
        draw_redistribution(redistribute(mesh_split((128,), many, (-1,)), mesh_split((128,), many, ("a",))))
    with approved_refusal("layouts", "pictures have limits, 2", LayoutError):
        draw_layout(mesh_split((8192,), mesh(a=8192), ("a",)))
    assert [short_text(n) for n in (512, 1536, 2_000_000, 3 * 10**9)] == ["512", "1.54k", "2M", "3G"]


def test_padding_is_grey_and_named():
    uneven, even = (svg(draw_layout(mesh_split((size, 8), GRID, ("model", -1)))) for size in (10, 12))
    assert "padded to (12, 8)" in uneven
    assert (IDLE in uneven, IDLE in even, "padded" in even) == (True, False, False)


def test_a_piece_with_padding_is_drawn_as_far_as_it_is_real():
    layout = mesh_split((10, 8), GRID, ("model", -1))  # pieces of 3 rows, of which the last has 1
    last = next(device for device in range(8) if layout.part(device) == (3, 0))
    assert held_part(layout, last) == (0, 0.75, 1, 1)
    assert real_part(layout, last) == (0, 0.75, 1, pytest.approx(10 / 12))
    nothing = mesh_split((9,), GRID, (("data", "model"),))  # of 8 parts of 2, the last three are padding only
    left, _, right, _ = real_part(nothing, 7)
    assert left == right
