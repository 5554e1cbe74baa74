"""Plans with uneven splits: planners, training steps, annotations and refusals."""

from __future__ import annotations

from itertools import product
from math import prod
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.layout import (
    Graph,
    GraphPlan,
    LayoutError,
    TensorLayout,
    candidates,
    complete,
    distribute,
    mesh,
    mesh_split,
    plan,
    propagate,
    training,
)
from lib.layout.examples import attention
from lib.layout.graph import ways_to_reduce
from tests.layout.test_peak import any_plan, assert_peaks_are_measured, chosen_plan, trained
from tests.layout.test_training import PROGRAMS, every_program, numbers
from tests.layout.test_uneven import assert_runs_as_predicted, poison, small_values, uneven_graphs
from tests.screens.texts import approved
from tests.support.examples import examples
from tests.support.layout_strategies import assert_same_program
from tests.support.refusals import Refused

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
