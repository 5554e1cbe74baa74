"""Copies as sources: what is gathered for one reader is not moved again for another."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from lib.layout import Graph, GraphPlan, P, TensorLayout, mesh, mesh_split, plan
from lib.layout.layouts import placement
from lib.layout.plans import MemoryTimeline
from tests.screens.texts import approved
from tests.support.layout_strategies import assert_same_program, values


def two_products(devices: int = 4, size: int = 8) -> Graph:
    """One product takes all rows of x, the other one its columns."""
    graph = Graph(mesh=mesh(x=devices))
    graph.input("x", (size, size))
    graph.parameter("w1", (size, size))
    graph.parameter("w2", (size, size))
    graph.matmul("whole", "x", "w1")
    graph.matmul("columns", "x", "w2")
    graph.shard("whole", ((1, 1), (1, devices)))
    graph.shard("columns", ((1, devices), (devices, 1)))
    graph.pin("x", P("x", None))
    return graph


def test_columns_are_cut_from_the_copy_that_was_gathered() -> None:
    graph = two_products()
    found = plan(graph)
    first, second = (edge for edge in found.edges if edge.tensor == "x")
    assert (first.bytes, first.copied_from) == (4 * 3 * 16 * 4, "")
    assert (second.bytes, second.copied_from) == (0, "whole")
    approved(
        "copies_as_sources", "columns are cut from the copy that was gathered", found.explain(), "x -> columns: slice"
    )
    assert_same_program(found)
    given = {name: value.astype(np.float32) for name, value in values(graph).items()}
    done = found.on_engine(given)
    assert done.sent == tuple(found.sent)
    assert done.peaks == tuple(found.timeline.peaks)


def test_what_was_gathered_over_eight_devices_is_all_that_moves() -> None:
    """A gather of 64x64 numbers, and the all-to-all of rows to columns that is not needed."""
    graph = two_products(8, 64)
    found = plan(graph)
    apart = GraphPlan(graph, found.operators, found.storage_layouts, taken_from={("columns", 0): None})
    moved = [sum(edge.bytes for edge in each.edges) for each in (found, apart)]
    assert moved == [7 * 64 * 64 * 4, 7 * 64 * 64 * 4 + 7 * 64 * 64 * 4 // 8] == [114_688, 129_024]


def test_the_copy_is_held_until_the_last_input_has_moved_from_it() -> None:
    found = plan(two_products())
    timeline = MemoryTimeline(found.graph, found.operators, found.storage_layouts, found.fetches, remember_all=True)
    held = [(str(moment), "x for whole, input 0" in moment.held) for moment in timeline.moments]
    assert held[2:] == [
        ("'whole' computes", True),
        ("'columns' moves 'x'", True),
        ("'columns' computes", False),
        ("'columns' reduces its output", False),
    ]


def by_trying(graph: Graph) -> int:
    """Of every layout of the sources and every order of sources of the inputs, the fewest bytes."""
    from lib.layout.choices import Choices

    choices = Choices(graph, {}, scatter=True)
    least = None
    for ways in product(*choices.operators.values()):
        for homes in product(*choices.storage_layouts.values()):
            found = GraphPlan(graph, dict(zip(choices.operators, ways)), dict(zip(choices.storage_layouts, homes)))
            least = found.bytes if least is None else min(least, found.bytes)
    assert least is not None
    return least


@pytest.mark.parametrize("pinned", [("x", None), (None, "x")])
def test_the_exact_plan_uses_copies(pinned: tuple[str | None, ...]) -> None:
    graph = Graph(mesh=mesh(x=2))
    graph.input("x", (4, 4))
    graph.relu("relu", "x")
    graph.pin("relu", P(*pinned))
    graph.pin("x", P(*pinned))
    for i in range(3):
        graph.add(f"sum{i}", "relu", "relu")
    graph.shard("sum0", ((1, 1), (1, 1)))
    graph.shard("sum1", ((2, 1), (2, 1)))
    graph.shard("sum2", ((1, 2), (1, 2)))
    found = plan(graph)
    assert found.bytes == by_trying(graph)
    assert_same_program(found)


def test_a_fixed_source_is_taken() -> None:
    graph = two_products()
    free = plan(graph)
    alone = GraphPlan(graph, free.operators, free.storage_layouts, taken_from={("columns", 0): None})
    copy = TensorLayout((8, 8), mesh(x=4), ((), ()))
    same = GraphPlan(graph, free.operators, free.storage_layouts, taken_from={("columns", 0): copy})
    assert alone.bytes == free.bytes + least_for_columns(graph)
    assert (same.bytes, placement(same.edges[2].source)) == (free.bytes, placement(copy))


def least_for_columns(graph: Graph) -> int:
    from lib.layout import least_bytes

    rows, columns = (mesh_split((8, 8), mesh(x=4), axes) for axes in (("x", -1), (-1, "x")))
    return least_bytes(rows, columns)
