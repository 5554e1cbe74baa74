"""Uneven splits: padding that is stored, moved and counted, and that no result sees; and plans with them."""

from functools import partial
from itertools import product
from math import prod
from random import Random

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
    complete,
    cut,
    distribute,
    join,
    layouts,
    least_bytes,
    mesh,
    mesh_split,
    plan,
    propagate,
    redistribute,
    training,
)
from lib.layout.examples import attention
from lib.layout.graph import ways_to_reduce
from lib.layout.propagation import storage_layouts
from tests.layout.test_operators import KINDS, one
from tests.layout.test_peak import (
    any_plan,
    assert_buffers_are_measured,
    assert_peaks_are_measured,
    chosen_plan,
    trained,
)
from tests.layout.test_training_step import PROGRAMS, every_program, numbers
from tests.screens.texts import approved
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


# === Plans with uneven splits ===


# Planners


def ten_rows(uneven: bool | None = None, **where) -> Graph:
    graph = Graph(uneven=uneven, **(where or {"devices": 4}))
    graph.input("x", (10, 8))
    graph.parameter("w", (8, 6))
    graph.relu("z", graph.matmul("y", "x", "w"))
    return graph


def test_an_explicit_strategy_works_without_the_setting_and_neighbors_stay_even():
    graph = ten_rows()
    graph.shard("y", ((4, 1), (1, 1)))
    found = propagate(graph)
    assert found.operators["y"].local.local_shape == (3, 6)
    assert not found.operators["z"].output.uneven
    assert_runs_as_predicted(found, small_values(graph))
    wide = ten_rows(uneven=True)
    wide.shard("y", ((4, 1), (1, 1)))
    follows = propagate(wide)
    assert follows.operators["z"].strategy == ((4, 1),)
    assert follows.bytes == 0 < found.bytes


def test_planners_consider_uneven_splits_only_when_asked():
    for where in ({"devices": 4}, {"mesh": mesh(a=2, b=2)}):
        even, wide = (ten_rows(uneven, **where) for uneven in (None, True))
        for graph in (even, wide):
            splits = {way.strategy for way in candidates(graph, graph.operators["y"])}
            assert (((4, 1), (1, 1)) in splits) == (graph is wide)
            assert {((2, 1), (1, 2)), ((1, 4), (4, 1))} <= splits
            outs = {way.output.splits for way in candidates(graph, graph.operators["y"])}
            assert ((4, 1) in outs) == (graph is wide)


def test_uneven_splits_hold_less_where_sizes_have_few_divisors():
    """6x5 and 5x7 and 7x3 on 4 devices: evenly, only rows split, in two."""
    even, wide = network(uneven=None), network(uneven=True)
    assert plan(even).memory == 600
    with Refused("no plan fits", smallest=600, error=LayoutError):
        plan(even, memory_cap=599)
    for cap in (599, 432, 332, 276):
        found = plan(wide, memory_cap=cap)
        assert found.memory <= cap
        assert_runs_as_predicted(found, small_values(wide))


def test_no_planner_scatters_sums_into_parts_that_are_padding_only():
    for where in ({"devices": 4}, {"mesh": mesh(a=4)}):
        graph = Graph(uneven=True, **where)
        graph.matmul("y", graph.input("x", (9, 8)), graph.parameter("w", (8, 7)))
        outs = {way.output.splits for way in candidates(graph, graph.operators["y"])}
        assert ((4, 1) in outs, (1, 4) in outs) == (False, True)  # 3 of 9 rows are a third, 2 of 7 columns a quarter
        graph.shard("y", ((1, 4), (4, 1)), out=(4, 1))  # a player may
        assert_runs_as_predicted(propagate(graph), small_values(graph))


def test_no_planner_makes_parts_that_are_padding_only():
    graph = Graph(8, uneven=True)
    graph.input("x", (9, 3))
    graph.relu("y", "x")
    splits = {way.strategy for way in candidates(graph, graph.operators["y"])}
    assert splits == {((2, 2),)}  # of 9 rows in 4 parts of 3, the last would have none
    graph.shard("y", ((8, 1),))  # a player may
    found = propagate(graph)
    assert found.operators["y"].output.real_shape(7) == (0, 3)
    assert_runs_as_predicted(found, small_values(graph))


def test_three_rows_on_eight_devices():
    graph = Graph(8)
    graph.input("x", (3, 5))
    graph.parameter("w", (5, 4))
    graph.reduce_sum("total", graph.softmax("soft", graph.matmul("y", "x", "w")), 0)
    graph.shard("y", ((8, 1), (1, 1)))
    graph.shard("soft", ((8, 1),))
    graph.shard("total", ((8, 1),))
    found = propagate(graph)
    assert_runs_as_predicted(found, small_values(graph))
    assert found.padding["x", (8, 5)] == 5 * 5 * 4


@st.composite
def two_operators(draw) -> Graph:
    graph = Graph(draw(st.sampled_from([2, 4])), uneven=True)
    rows, width, more = (draw(st.sampled_from([2, 3, 5, 7])) for _ in range(3))
    graph.input("x", (rows, width))
    graph.parameter("w", (width, more))
    graph.matmul("a", "x", "w")
    graph.operator(draw(st.sampled_from(["relu", "softmax"])), "b", "a")
    return graph


@examples(30)
@given(two_operators(), st.data())
def test_the_exact_plan_is_the_cheapest_of_all_even_and_uneven_ones(graph, data):
    """Brute force over plans as such: every strategy of each operator by hand, every way to reduce, every layout of the
    sources that a reader wants or that is a split in order."""
    n = graph.devices
    divisors = [d for d in range(1, n + 1) if n % d == 0]

    def filled(size: int, parts: int) -> bool:
        return (parts - 1) * -(-size // parts) < size

    def ways(name: str) -> list:
        operator = graph.operators[name]
        letters = operator.input_letters_once
        size = {x: s for row, shape in zip(operator.input_letters, operator.input_shapes) for x, s in zip(row, shape)}
        strategies = [
            tuple(tuple(dict(zip(letters, parts))[x] for x in row) for row in operator.input_letters)
            for parts in product(divisors, repeat=len(letters))
            if n % prod(parts) == 0
            and all(d == 1 or (x in operator.free and filled(size[x], d)) for x, d in zip(letters, parts))
        ]
        used = {s: distribute(operator, s, n) for s in strategies}
        most = max(prod(way.local.splits) * way.local.summands for way in used.values())
        return [
            each
            for way in used.values()
            if prod(way.local.splits) * way.local.summands == most
            for each in ways_to_reduce(way, uneven=True)
            if all(filled(size, parts) for size, parts in zip(each.output.shape, each.output.splits))
        ]

    found = plan(graph)
    cap = data.draw(st.integers(found.memory // 2, found.memory + 100))
    best: dict[str, float] = {"free": np.inf, "capped": np.inf}
    for a, b in product(ways("a"), ways("b")):
        for x, w in product(*([a.inputs[i], *_stored(graph, name)] for i, name in enumerate("xw"))):
            each = GraphPlan(graph, {"a": a, "b": b}, {"x": x, "w": w})
            best["free"] = min(best["free"], each.bytes)
            if each.memory <= cap:
                best["capped"] = min(best["capped"], each.bytes)
    assert found.bytes == best["free"]
    if best["capped"] < np.inf:
        assert plan(graph, memory_cap=cap).bytes == best["capped"]
    else:
        with pytest.raises(LayoutError, match="no plan fits into"):
            plan(graph, memory_cap=cap)


def _stored(graph: Graph, name: str) -> list[TensorLayout]:
    from lib.layout.graph import source_layouts

    return source_layouts(graph.shapes[name], graph)


def test_a_configured_strategy_is_kept_on_prime_axes():
    graph = ten_rows()
    graph.shard("y", ((4, 1), (1, 1)))
    found = plan(graph, every_split=True)
    assert found.operators["y"].strategy == ((4, 1), (1, 1))
    assert found.bytes <= plan(graph).bytes
    assert_runs_as_predicted(found, small_values(graph))
    assert ten_rows(uneven=True).on_prime_axes().uneven is True


@pytest.mark.slow
def test_a_cap_on_the_peak_holds_with_padding():
    graph = network()
    given = small_values(graph)
    for cap, moved in ((372, 96), (332, 96), (292, 720)):
        found = plan(graph, peak=cap)
        assert (found.bytes, found.at_least) == (moved, None)
        assert found.peak <= cap
        assert_runs_as_predicted(found, given)
    with Refused("peak too small", smallest=288, error=LayoutError):
        plan(graph, peak=252)


def test_a_player_may_scatter_sums_unevenly():
    graph = ten_rows()
    graph.shard("y", ((1, 4), (4, 1)), out=(4, 1))
    found = propagate(graph)
    (scatter,) = found.operators["y"].reduction
    assert (scatter.name, scatter.target.local_shape) == ("reduce-scatter", (3, 6))
    assert found.collective_bytes("y") == 4 * 3 * (3 * 6) * 4
    assert_runs_as_predicted(found, small_values(graph))
    on_mesh = ten_rows(mesh=mesh(a=2, b=2))
    on_mesh.shard("y", ((1, 4), (4, 1)), out=(4, 1))
    assert propagate(on_mesh).operators["y"].output.local_shape == (3, 6)
    assert_runs_as_predicted(propagate(on_mesh), small_values(on_mesh))


def test_explain_names_the_padding():
    graph = ten_rows(uneven=True)
    graph.shard("y", ((4, 1), (1, 1)))
    told = propagate(graph).explain()
    approved("uneven_plans", "explain names the padding", told, "'x' is padded from", "'z' is padded from")
    assert "'w'" not in told
    graph.shard("y", ((2, 1), (1, 2)))
    assert "padded" not in propagate(graph).explain()


# Refusals


def test_a_graph_may_refuse_uneven_splits():
    graph = ten_rows(uneven=False)
    with Refused("no equal parts", name="y", dim=0, tensor="x", size=10, n=4, whole=12, error=LayoutError):
        graph.shard("y", ((4, 1), (1, 1)))
    with Refused("no equal parts", name="y", dim=0, tensor="y", size=10, n=4, error=LayoutError):
        graph.shard("y", ((1, 4), (4, 1)), out=(4, 1))
    graph.shard("y", ((2, 1), (1, 2)))
    with Refused("uneven not boolean", got="no", error=LayoutError):
        Graph(2, uneven="no")


def test_such_a_graph_refuses_uneven_annotations_too():
    grid = mesh(data=4)
    graph = ten_rows(uneven=False, mesh=grid)
    with Refused("padded annotation", shape=(10, 8), padded=(12, 8), error=LayoutError):
        complete(graph, {"x": mesh_split((10, 8), grid, ("data", -1))})
    assert complete(graph, {"x": mesh_split((10, 8), grid, (-1, "data"))}).plan.bytes > 0


# Training


def network(uneven: bool | None = True, devices: int = 4) -> Graph:
    graph = Graph(devices, uneven=uneven)
    graph.input("x", (6, 5))
    graph.parameter("w1", (5, 7))
    graph.parameter("b1", (7,))
    graph.parameter("w2", (7, 3))
    graph.gelu("h", graph.add("biased", graph.matmul("first", "x", "w1"), "b1"))
    graph.matmul("second", "h", "w2")
    return graph


@pytest.mark.sampled(1)
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize(
    ("rows", "caps"),
    [
        (((4, 1), (1, 1)), {"sgd": 478, "adam": 831}),
        (((1, 1), (1, 4)), {"sgd": 367, "adam": 496}),
        (((1, 4), (4, 1)), {"sgd": 381, "adam": 540}),
        (((2, 1), (1, 2)), {"sgd": 378, "adam": 637}),
    ],
)
def test_a_training_step_with_padding_equals_one_device(optimizer, rows, caps, monkeypatch):
    poison(monkeypatch)
    step = training(network(), optimizer)
    assert step.uneven is True
    step.shard("first", rows)
    given = numbers(step)
    for found in (propagate(step), plan(step), plan(step, memory_cap=caps[optimizer])):
        alone, done = step.run(given), found.on_engine(given)
        for name, tensor in alone.items():
            np.testing.assert_allclose(done.value(name), tensor, rtol=1e-9, atol=1e-9, err_msg=name)
        assert done.peaks == tuple(2 * found.timeline.peaks)
        assert abs(done.bytes - 2 * found.bytes) < 8 * 4 * 2 * len(step.operators)
        for new, old in (step.step.replaces if step.step else {}).items():
            assert found.layout(new) == found.layout(old)


@pytest.mark.sampled(1)
@every_program
def test_every_gradient_ignores_padding(program, monkeypatch):
    """The programs of the training tests on three devices; attention with heads enough."""
    poison(monkeypatch)
    graph = attention(batch=5, length=8, heads=5, width=10) if program == "attention" else PROGRAMS[program]()
    graph.devices, graph.uneven = 3, True
    step = training(graph, "adam")
    given = numbers(step)
    alone = step.run(given)
    rng = Random(0)
    for _ in range(3):
        found = chosen_plan(rng.choice, step)
        assert any(found.padding)
        done = found.on_engine(given)
        for name, tensor in alone.items():
            np.testing.assert_allclose(done.value(name), tensor, rtol=1e-9, atol=1e-9, err_msg=name)


@examples(80)
@given(trained(uneven=True), st.data())
def test_any_plan_of_a_random_training_step_runs_as_predicted(step, data):
    found = any_plan(data.draw, step)
    assert_peaks_are_measured(found)
    assert_runs_as_predicted(found, numbers(step))


# Annotations


def test_an_uneven_annotation_spreads():
    grid = mesh(data=4)
    graph = ten_rows(mesh=grid)
    done = complete(graph, {"x": mesh_split((10, 8), grid, ("data", -1))})
    assert done.layouts["z"].local_shape == (3, 6)
    assert (done.plan.bytes, done.conflicts) == (0, ())
    assert_runs_as_predicted(done.plan, small_values(graph))


@examples(60)
@given(uneven_graphs(mesh(a=2, b=2)), st.data())
def test_any_annotations_of_a_random_graph_run_as_predicted(graph, data):
    names = data.draw(st.lists(st.sampled_from(list(graph.shapes)), min_size=1, max_size=3, unique=True))
    annotations = {}
    for name in names:
        dims = [-1] * len(graph.shapes[name])
        for axis in data.draw(st.lists(st.sampled_from("ab"), unique=True)):
            dims[data.draw(st.integers(0, len(dims) - 1))] = axis
        annotations[name] = mesh_split(graph.shapes[name], graph.mesh, dims)
    done = complete(graph, annotations)
    assert all(done.layouts[name] == layout for name, layout in annotations.items())
    assert_runs_as_predicted(done.plan, small_values(graph))


def test_an_annotation_does_not_spread_through_a_reshape_with_other_pieces():
    grid = mesh(data=4)
    graph = Graph(mesh=grid)
    graph.input("x", (6, 4))
    graph.reshape("flat", "x", (24,))
    done = complete(graph, {"flat": mesh_split((24,), grid, ("data",))})
    assert done.layouts["x"].splits == (1, 1)
    approved(
        "uneven_plans",
        "an annotation does not spread through a reshape with other pieces",
        str(done.conflicts[0]),
        "6 has no 4",
    )
    assert_same_program(done.plan)
