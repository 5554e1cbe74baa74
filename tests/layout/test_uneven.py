"""Uneven splits: padding that is stored, moved and counted like elements, and that no result ever sees."""

from __future__ import annotations

from functools import partial
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.layout import (
    DeviceMatrix,
    Graph,
    GraphPlan,
    LayoutError,
    TensorLayout,
    candidates,
    cut,
    distribute,
    join,
    layouts,
    least_bytes,
    mesh,
    plan,
    propagate,
    redistribute,
)
from lib.layout.graph import ways_to_reduce
from lib.layout.propagation import storage_layouts
from tests.layout.test_operators import KINDS, one
from tests.layout.test_peak import assert_buffers_are_measured
from tests.support import layout_strategies
from tests.support.examples import examples
from tests.support.layout_strategies import assert_same_program, summands, uneven_pairs, values
from tests.support.refusals import Refused

GRID = mesh(x=2, y=4)


on = partial(layout_strategies.on, grid=GRID)


def poison(patch: pytest.MonkeyPatch) -> None:
    """Makes all padding NaN, or of whole numbers one that is no row of any table."""

    def blank(shape, dtype):
        return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else 10**6, dtype)

    for module in ("layouts", "execution"):
        patch.setattr(f"lib.layout.{module}.blank", blank)


# Layouts


def test_a_piece_is_the_size_divided_by_the_parts_rounded_up():
    layout = on("y", -1, shape=(10, 3))
    assert (layout.local_shape, layout.padded_shape, layout.uneven) == ((3, 3), (12, 3), True)
    assert [layout.real_shape(device)[0] for device in range(4)] == [3, 3, 3, 1]
    assert layout.box(3) == (slice(9, 10), slice(0, 3))
    assert not on("x", -1, shape=(10, 3)).uneven


def test_parts_may_be_padding_only():
    layout = on(("x", "y"), shape=(9,))
    assert [layout.real_shape(device) for device in range(8)] == [(2,), (2,), (2,), (2,), (1,), (0,), (0,), (0,)]
    tensor = np.arange(9.0)
    np.testing.assert_array_equal(join(cut(tensor, layout), layout), tensor)


def equal_where_real(a, b, layout: TensorLayout) -> None:
    for device in range(layout.devices):
        np.testing.assert_array_equal(*(layouts.trimmed(each[device], layout, device) for each in (a, b)))


@examples(60)
@given(uneven_pairs(partial=True))
def test_cutting_and_joining_is_the_identity(two):
    tensor = np.arange(prod(two[0].shape), dtype=float).reshape(two[0].shape)
    np.testing.assert_array_equal(join(cut(tensor, two[0]), two[0]), tensor)


# Redistributions


def test_regular_collectives_move_padding():
    """The formulas of Thakur et al. 2005, with S the padded size: 12 for 10 in 4 parts, 8 for 6."""
    rows, columns, whole = on("y", -1, shape=(10, 6)), on(-1, "y", shape=(10, 6)), on(-1, -1, shape=(10, 6))
    for source, target, name, each in (
        (rows, whole, "all-gather", 3 * (3 * 6)),
        (whole, rows, "slice", 0),
        (rows, columns, "all-to-all", 3 * (12 * 8) // 4 // 4),
        (on("x", "y", shape=(8, 10)), on(("x", "y"), -1, shape=(8, 10)), "all-to-all", 3 * (4 * 3) // 4),
        (on(("x", "y"), -1, shape=(9, 2)), on(("y", "x"), -1, shape=(9, 2)), "permute", None),
        (on("x", -1, shape=(10, 6), partial="y"), on("x", "y", shape=(10, 6)), "reduce-scatter", 3 * (5 * 8) // 4),
    ):
        moves = redistribute(source, target)
        assert moves.names == (name,)
        if each is not None:
            assert set(moves.sent.tolist()) == set(moves.received.tolist()) == {4 * each}
        assert redistribute(source, target, named_only=True).bytes == moves.bytes == least_bytes(source, target)


def test_padding_that_only_one_of_two_splits_has_is_not_moved():
    """10 in 4 parts is padded to 12, in 2 parts not at all: a device needs 5 and holds 3 of them, 2 or 1."""
    moves = redistribute(on("y", shape=(10,)), on("x", shape=(10,)))
    needed = [5 - len({*range(3 * (d % 4), min(3 * (d % 4) + 3, 10))} & {*range(5 * (d // 4), 5 * (d // 4) + 5)})
              for d in range(8)]  # fmt: skip
    assert moves.received.tolist() == [4 * n for n in needed]


@examples(100)
@given(uneven_pairs(partial=True))
def test_any_redistribution_is_right_and_moves_what_it_predicts(two):
    source, target = two
    given = {device: piece.astype(np.float64) for device, piece in summands(source).items()}  # a message has 8 bytes
    for moves in (redistribute(source, target, 8), redistribute(source, target, 8, named_only=True)):
        made, done = moves.run(given), moves.on_engine(given)
        np.testing.assert_array_equal(join(made, target), join(given, source))
        equal_where_real(done.pieces["tensor"], made, target)
        assert moves.bytes == sum(moves.sent) == sum(moves.received)
        for step in moves.steps:
            np.testing.assert_array_equal(step.traffic().sum(axis=1), step.sent)
            np.testing.assert_array_equal(step.traffic().sum(axis=0), step.received)
            assert step.total == step.sent.sum()
        assert abs(done.bytes - moves.bytes) < 8 * source.devices * max(1, len(moves.named_steps))
    fewest = redistribute(source, target)
    assert fewest.bytes == least_bytes(source, target)
    if not source.uneven and not target.uneven:  # otherwise padding may be cut off in between
        assert 2 * fewest.bytes <= moves.bytes


@examples(80)
@given(uneven_pairs(partial=True), st.booleans())
def test_the_buffers_of_any_redistribution(two, named_only):
    assert_buffers_are_measured(*two, named_only)


@examples(60)
@given(uneven_pairs())
def test_no_redistribution_moves_less_than_the_elements_that_devices_lack(two):
    source, target = two
    element = np.arange(prod(source.shape)).reshape(source.shape)
    lacking = sum(len({*element[target.box(d)].flat} - {*element[source.box(d)].flat}) for d in range(source.devices))
    assert least_bytes(source, target) >= 4 * lacking
    if not source.uneven and not target.uneven:
        assert least_bytes(source, target) == 4 * lacking


# Operators


def every_split(graph: Graph) -> list:
    """Each way to distribute the operator, parts that are padding only included: the divisors of the devices on every
    letter of the inputs, by hand."""
    operator, n = graph.operators["op"], graph.devices
    divisors = [d for d in range(1, n + 1) if n % d == 0]
    letters = operator.input_letters_once
    found = []
    for parts in product(divisors, repeat=len(letters)):
        of = dict(zip(letters, parts))
        strategy = tuple(tuple(of.get(letter, 1) for letter in row) for row in operator.input_letters)
        try:
            found += ways_to_reduce(distribute(operator, strategy, n), uneven=True)
        except LayoutError:
            assert n % prod(parts) or not all(operator.splits(letter, d) for letter, d in of.items())
    return found


def on_its_own(graph: Graph, way) -> GraphPlan:
    return GraphPlan(graph, {"op": way}, storage_layouts(graph, {"op": way}))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_every_operator_gives_the_same_whatever_is_in_the_padding(kind, monkeypatch):
    poison(monkeypatch)
    for graph in (one(kind, sizes=(3, 6, 5)), one(kind, devices=6, sizes=(5, 10, 3))):
        for way in every_split(graph):
            assert_same_program(on_its_own(graph, way))
    on_mesh = one(kind, grid=mesh(a=2, b=2), sizes=(3, 6, 5), uneven=True)
    for way in candidates(on_mesh, on_mesh.operators["op"]):
        assert_same_program(on_its_own(on_mesh, way))


@pytest.mark.parametrize("kind", ["matmul", "einsum", "sum", "mean", "scatter"])
def test_without_the_cut_padding_would_reach_a_result(kind, monkeypatch):
    """The test above fails if an operator computes with the padding."""
    poison(monkeypatch)
    graph = one(kind, sizes=(3, 6, 5))
    monkeypatch.setattr("lib.layout.graph.trimmed", lambda piece, layout, device: piece)
    wrong = 0
    for way in every_split(graph):
        with np.errstate(invalid="ignore"):
            try:
                assert_same_program(on_its_own(graph, way))
            except (AssertionError, LayoutError, IndexError, ValueError):
                wrong += 1
    assert wrong > 0


def test_reduce_max_and_softmax_of_a_log_meet_no_padding(monkeypatch):
    """Padding of zeros would be a warning in the logarithm, and the largest of negative numbers."""
    poison(monkeypatch)
    graph = Graph(4, uneven=True)
    graph.input("x", (7, 3))
    graph.reduce_max("most", graph.softmax("soft", graph.log("log", graph.exp("exp", "x"))), 1)
    graph.shard("log", ((4, 1),))
    found = propagate(graph)
    assert found.operators["most"].strategy == ((4, 1),)
    assert_same_program(found)


def test_a_reshape_is_split_only_where_its_pieces_are_the_same_elements():
    graph = Graph(4)
    graph.input("x", (6, 4))
    graph.reshape("merged", "x", (24,))
    with Refused("parts do not divide", where="merged: dimension 0 of 'x', of size 6,", n=4, error=LayoutError):
        graph.shard("merged", ((4, 1),))
    seven = Graph(4)
    seven.input("x", (7, 2))
    seven.reshape("merged", "x", (14,))
    seven.shard("merged", ((4, 1),))  # 2 rows of 2, and 4 of 14
    found = propagate(seven)
    assert found.bytes == 0
    assert_same_program(found)


# Graphs


@st.composite
def uneven_graphs(draw, grid: DeviceMatrix | None = None) -> Graph:
    """Up to four operators of all kinds of reading, on sizes that mostly do not divide."""
    graph = Graph(None if grid else draw(st.sampled_from([2, 3, 4, 6])), grid, uneven=True)
    sizes = st.sampled_from([1, 3, 5, 6, 7])
    graph.input("x", (draw(sizes), draw(sizes)))
    last = "x"
    kinds = [
        "matmul",
        "relu",
        "add",
        "row",
        "transpose",
        "softmax",
        "gather",
        "sum",
        "max",
        "repeat",
        "concat",
        "top_k",
    ]
    for i in range(draw(st.integers(1, 4))):
        kind, name, (rows, width) = draw(st.sampled_from(kinds)), f"op{i}", graph.shapes[last]
        if kind == "matmul":
            graph.parameter(f"w{i}", (width, draw(sizes)))
            graph.matmul(name, last, f"w{i}")
        elif kind == "add":
            graph.add(name, last, last)
        elif kind == "row":
            graph.parameter(f"w{i}", (width,))
            graph.multiply(name, last, f"w{i}")
        elif kind == "gather" and "tokens" not in graph.shapes:
            graph.input("tokens", (draw(sizes),))
            graph.gather(name, graph.relu(f"{name}.table", last), "tokens")
        elif kind in ("sum", "max"):
            graph.operator(f"reduce_{kind}", f"{name}.less", last, axis=0)
            graph.repeat(name, f"{name}.less", 0, draw(sizes))
        elif kind == "repeat":
            graph.reshape(name, graph.repeat(f"{name}.more", last, 0, 2), (2 * rows, width))
        elif kind == "concat":
            graph.concat(name, last, last, axis=draw(st.integers(0, 1)))
        elif kind == "top_k":
            graph.top_k(name, last, 1)
        elif kind == "transpose":
            graph.transpose(name, last, (1, 0))
        else:
            graph.operator("softmax" if kind == "softmax" else "relu", name, last)
        last = name
    return graph


def small_values(graph: Graph) -> dict[str, np.ndarray]:
    given = {name: value.astype(np.float64) for name, value in values(graph).items()}
    if "tokens" in given:
        (taker, _), *_ = graph.consumers("tokens")
        given["tokens"] = np.arange(given["tokens"].size).reshape(given["tokens"].shape) % taker.input_shapes[0][0]
    return given


def assert_runs_as_predicted(found: GraphPlan, given: dict[str, np.ndarray]) -> None:
    """Values, bytes and peaks of every device; flops of the fullest one."""
    alone, done = found.graph.run(given), found.on_engine(given)
    for name, tensor in alone.items():
        largest = max(1.0, float(np.abs(tensor).max()))
        np.testing.assert_allclose(done.value(name), tensor, rtol=1e-12, atol=1e-12 * largest, err_msg=name)
    wider = 8 // found.graph.itemsize
    sums = [step for op in found.operators.values() for step in op.reduction if step.name == "all-reduce"]
    if all(step.source.elements % len(step.group(0)) == 0 for step in sums):  # otherwise a meter counts the average
        assert done.sent == tuple(wider * found.sent)
    assert abs(done.bytes - wider * found.bytes) <= 8 * len(sums) * found.graph.devices
    assert done.peaks == tuple(wider * found.timeline.peaks), found.explain()
    products = sum(op.flops for op in found.operators.values() if op.operator.kind in ("matmul", "einsum"))
    assert max(reading.flops for reading in done.meters) <= products


@examples(80)
@given(uneven_graphs(), st.data())
def test_any_plan_of_a_random_graph_runs_as_predicted(graph, data):
    given = small_values(graph)
    name = data.draw(st.sampled_from(list(graph.operators)))
    ways = candidates(graph, graph.operators[name])
    graph.shard(name, data.draw(st.sampled_from([way.strategy for way in ways])))
    assert_runs_as_predicted(propagate(graph), given)
    found = plan(graph)
    assert plan(graph, every_split=True).bytes <= propagate(graph).bytes  # the rule may leave devices unused
    assert_runs_as_predicted(found, given)
    low = min(found.memory, plan(graph, memory_cap=None).memory)
    assert_runs_as_predicted(plan(graph, memory_cap=low), given)


@examples(30)
@given(uneven_graphs(), st.data())
def test_any_plan_of_a_random_graph_ignores_its_padding(graph, data):
    given = small_values(graph)
    name = data.draw(st.sampled_from(list(graph.operators)))
    way = data.draw(st.sampled_from(candidates(graph, graph.operators[name])))
    graph.shard(name, way.strategy)
    alone = graph.run(given)
    with pytest.MonkeyPatch.context() as patch:
        poison(patch)
        found = propagate(graph)
        together, done = found.values(given), found.on_engine(given)
    for tensor, value in alone.items():
        np.testing.assert_allclose(together[tensor], value, rtol=1e-12, atol=1e-9)
        np.testing.assert_allclose(done.value(tensor), value, rtol=1e-12, atol=1e-9)
