"""Time instead of bytes: what a step takes on links of different speed, and plans that prefer the fast axis."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from lib.layout import (
    Graph,
    GraphPlan,
    LayoutError,
    Links,
    P,
    TensorLayout,
    join,
    mesh,
    mesh_split,
    plan,
    redistribute,
    training,
)
from lib.layout.examples import feed_forward
from lib.layout.planning.choices import Choices
from tests.support.layout_strategies import summands

GRID = mesh(data=2, model=4)
EVEN = Links.of(GRID, data=(0, 1), model=(0, 1))


def test_even_links_without_latency_take_the_bytes_of_the_busiest_device():
    rows, columns = mesh_split((64, 64), GRID, (("data", "model"), -1)), mesh_split((64, 64), GRID, (-1, "model"))
    move = redistribute(rows, columns)
    assert EVEN.time(move.named_steps, 4) == int(move.sent.max())


def test_a_step_takes_as_long_as_its_slowest_device():
    """An all-gather in pairs of the data axis, and one in fours of the model axis: messages and bytes by hand."""
    links = Links.of(GRID, data=(1000, 8), model=(100, 1))
    whole, data, model = (mesh_split((64, 64), GRID, dims) for dims in ((-1, -1), ("data", -1), ("model", -1)))
    assert links.time(redistribute(data, whole).named_steps, 4) == 1000 + 8 * (32 * 64 * 4)
    fours = redistribute(model, mesh_split((64, 64), GRID, (-1, -1)))
    # each device needs three quarters; both copies of a quarter share the sending, half of it over the slow axis or not
    table = sum(step.traffic() for step in fours.named_steps) * 4
    places = [GRID.coordinates(device) for device in range(8)]
    by_hand = [
        sum(
            (1000 + 8 * int(table[a, b])) if places[a][0] != places[b][0] else (100 + int(table[a, b]))
            for b in range(8)
            if table[a, b]
        )
        for a in range(8)
    ]
    assert links.time(fours.named_steps, 4) == max(by_hand)


def product_on(grid) -> Graph:
    graph = Graph(mesh=grid)
    graph.input("x", (8, 8))
    graph.parameter("w", (8, 8))
    graph.matmul("y", "x", "w")
    return graph


@pytest.mark.slow
def test_a_plan_takes_the_least_time_of_all_plans_one_by_one():
    graph = product_on(mesh(slow=2, fast=2))
    graph.shard("y", ((1, 4), (4, 1)))
    links = Links.of(graph.mesh, slow=(50, 9), fast=(10, 1))
    caps = {"w": 64, "x": 64}
    choices = Choices(graph, caps, scatter=True)
    times = [
        GraphPlan(graph, dict(zip(choices.operators, ways)), dict(zip(choices.storage_layouts, homes))).time(links)
        for ways in product(*choices.operators.values())
        for homes in product(*choices.storage_layouts.values())
    ]
    assert plan(graph, tensor_caps=caps, links=links).time(links) == min(times) > 0


def test_a_plan_names_the_axes_of_its_own_mesh():
    """Meshes that differ only in names are equal, but what is cached for one is not shown for another."""
    for names in ({"a": 2, "b": 2}, {"pod": 2, "ring": 2}):
        graph = product_on(mesh(**names))
        graph.shard("y", ((2, 1), (1, 2)))
        found = plan(training(graph))
        assert all(set(found.layout(name).matrix.names) == set(names) for name in found.graph.shapes)


@pytest.mark.slow
def test_gradients_cross_the_fast_axis():
    """Data parallelism over two of four devices each way: bytes are equal, and only time says which axis is better."""

    def step() -> Graph:
        graph = Graph(mesh=mesh(a=2, b=2))
        graph.input("x", (64, 8))
        graph.parameter("w", (8, 8))
        graph.matmul("y", "x", "w")
        made = training(graph, "sgd")
        made.shard("y", ((2, 1), (1, 2)))
        return made

    def batch_axis(a: int, b: int) -> str:
        graph = step()
        found = plan(graph, links=Links.of(graph.mesh, a=(0, a), b=(0, b)))
        (axes,) = found.operators["y"].inputs[0].tensor_map[:1]
        return graph.mesh.names[axes[0]]

    assert (batch_axis(9, 1), batch_axis(1, 9)) == ("b", "a")


def test_least_time_is_never_more_than_the_time_of_the_least_bytes():
    graph = Graph(mesh=GRID)
    plain = feed_forward()
    for name, role in plain.sources.items():
        getattr(graph, role)(name, plain.shapes[name])
    for op in plain.operators.values():
        graph.operator(op.kind, op.name, *op.inputs)
    graph.shard("matmul1", ((2, 1), (1, 4)))
    caps = {"weight2": 4096}
    links = Links.of(GRID, data=(5000, 8), model=(100, 1))
    by_bytes, by_time = plan(graph, tensor_caps=caps), plan(graph, tensor_caps=caps, links=links)
    assert by_time.time(links) <= by_bytes.time(links)
    assert by_bytes.bytes <= by_time.bytes
    values = {name: np.ones(graph.shapes[name]) for name in graph.sources}
    assert np.array_equal(by_time.values(values)["add2"], graph.run(values)["add2"])


def test_a_sum_over_both_axes_crosses_the_slow_one_with_what_the_fast_one_has_scattered():
    """An all-reduce over eight devices takes a reduce-scatter of fours, an all-reduce of pairs and an all-gather."""
    links = Links.of(GRID, data=(0, 8), model=(0, 1))
    summed = TensorLayout((64, 64), GRID, ((), ()), (0, 1))
    direct = redistribute(summed, summed.full())
    steps = links.quickest(summed, summed.full(), 4)
    assert [step.name for step in steps] == ["reduce-scatter", "all-reduce", "all-gather"]
    assert sum(step.total for step in steps) * 4 == direct.bytes
    size = 64 * 64 * 4
    assert links.time(steps, 4) == 2 * size * 3 // 4 + size // 4 * 8
    assert links.time(steps, 4) < links.time(direct.named_steps, 4) // 2
    pieces = summands(summed)
    assert np.array_equal(join_of(steps, pieces), sum(pieces.values()))


def join_of(steps, pieces):
    for step in steps:
        pieces = step.run(pieces)
    return join(pieces, steps[-1].target)


def test_an_all_reduce_has_the_messages_of_its_two_halves():
    line = mesh(model=4)
    links = Links.of(line, model=(10, 0))
    summed = TensorLayout((64, 64), line, ((), ()), (0,))
    scattered = mesh_split((64, 64), line, ("model", -1))
    halves = redistribute(summed, scattered).named_steps, redistribute(scattered, summed.full()).named_steps
    whole = redistribute(summed, summed.full()).named_steps
    assert [step.name for step in whole] == ["all-reduce"]
    assert links.time(whole, 4) == sum(links.time(half, 4) for half in halves) == 2 * 3 * 10


def test_a_hierarchical_reduction_takes_less_time_for_the_same_bytes():
    """By hand, for 16,384 bytes: messages of 1,000 and 8 per byte over data, of 100 and 1 over model.

    An all-reduce takes what its two halves take, hop by hop: of n devices, each sends n - 1 messages in the
    reduce-scatter and n - 1 in the all-gather. So the all-reduce of pairs has two latencies of 1,000. With one of them,
    59,944 would be 58,944, but the all-reduce would then take less time than its halves.
    """
    links = Links.of(GRID, data=(1000, 8), model=(100, 1))
    summed = TensorLayout((64, 64), GRID, ((), ()), (0, 1))
    direct, steps = redistribute(summed, summed.full()).named_steps, links.quickest(summed, summed.full(), 4)
    assert sum(step.total for step in steps) == sum(step.total for step in direct)
    eighth, quarter = 2048, 4096
    one_by_one = 2 * (3 * (100 + eighth) + 4 * (1000 + 8 * eighth))
    by_axis = 2 * 3 * (100 + quarter) + 2 * (1000 + 8 * quarter // 2)
    assert (links.time(direct, 4), links.time(steps, 4)) == (one_by_one, by_axis) == (151_960, 59_944)
    once = one_by_one - (3 * 100 + 4 * 1000), by_axis - 1000
    assert once == (147_660, 58_944), "if the all-reduce had the latency of one of its halves only"
    pairs = steps[1]
    scattered = mesh_split((16, 64), mesh(data=2), ("data", None))
    of_pairs = TensorLayout((16, 64), mesh(data=2), ((), ()), (0,))
    alone = Links.of(mesh(data=2), data=(1000, 8))
    halves = redistribute(of_pairs, scattered).named_steps + redistribute(scattered, of_pairs.full()).named_steps
    assert [step.name for step in halves] == ["reduce-scatter", "all-gather"]
    assert links.time([pairs], 4) == alone.time(halves, 4) == 2 * (1000 + 8 * 2048)


def test_a_plan_moves_by_the_quickest_steps_and_runs_as_predicted():
    graph = product_on(GRID)
    links = Links.of(GRID, data=(10, 50), model=(1, 1))
    given = {"x": P(None, ("data", "model")), "w": P(("data", "model")), "y": P()}
    graph.shard("y", ((1, 8), (8, 1)))
    found = plan(graph, layouts=given, links=links)
    steps = [step.name for step in found.operators["y"].reduction]
    assert steps == ["reduce-scatter", "all-reduce", "all-gather"]
    assert found.time(links) < plan(graph, layouts=given).time(links)
    values = {name: np.arange(64, dtype=np.float32).reshape(8, 8) for name in graph.sources}
    done = found.on_engine(values)
    assert done.sent == tuple(found.sent)
    assert np.array_equal(done.value("y"), graph.run(values)["y"])


def test_explain_states_the_time_of_each_step_and_of_all():
    graph = product_on(GRID)
    links = Links.of(GRID, data=(10, 50), model=(1, 1))
    graph.shard("y", ((1, 8), (8, 1)))
    found = plan(graph, links=links, flops=4)
    each = [links.time([step], 4) for step in found.operators["y"].reduction]
    said = found.explain()
    for step, took in zip(found.operators["y"].reduction, each):
        assert f"{step.name}, " in said
        assert f" bytes, {took:,} units of time, -> " in said
    moving = found.time(links)
    assert moving == sum(each) + sum(links.time(found.redistribution(edge).named_steps, 4) for edge in found.edges)
    computing = found.flops // 4
    assert (
        f"{moving + computing:,} units of time, one after the other: moves and collectives {moving:,}, "
        f"computing {computing:,}" in said
    )
    assert f"moves and collectives {moving:,}, without computing" in plan(graph, links=links).explain()


REFUSED = [
    (lambda: Links.of(GRID, data=(1, 1)), "'model' has none"),
    (lambda: Links.of(GRID, data=(1, 1), model=(1, 1), pod=(1, 1)), "has no axis 'pod'"),
    (lambda: Links.of(GRID, data=(1, 1), model=3), "two whole numbers"),
    (lambda: Links.of(GRID, data=(1, 1), model=(1, -1)), "got (1, -1)"),
    (lambda: Links.of(GRID, data=(1, 1), model=(1, True)), "got True"),
    (lambda: plan(feed_forward(), links=EVEN), "the links are for a mesh 2x4; the graph has no mesh"),
    (lambda: plan(product_on(mesh(a=8)), links=EVEN), "the graph is planned for a mesh 8"),
    (lambda: plan(product_on(GRID), links={"data": 1}), "links are given as Links.of"),
]  # fmt: skip


@pytest.mark.parametrize(("act", "sentence"), REFUSED)
def test_links_that_do_not_fit_are_refused(act, sentence):
    with pytest.raises(LayoutError) as refusal:
        act()
    assert sentence in str(refusal.value)
