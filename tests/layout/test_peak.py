"""Peak memory: predicted from live ranges, copies and buffers, and read from the meters, equal to the byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.layout import (
    Graph,
    GraphPlan,
    TensorLayout,
    complete,
    mesh,
    mesh_split,
    plan,
    propagate,
    redistribute,
    training,
)
from lib.layout.choices import Choices
from lib.layout.examples import feed_forward, megatron_mlp, one_matmul
from lib.layout.graph import arrange
from lib.layout.plans import MemoryTimeline, most_elements
from tests.layout.test_propagation import small_graphs
from tests.support.examples import examples
from tests.support.layout_examples import layer_norm, mixture_of_experts, swiglu
from tests.support.layout_strategies import pairs, summands, values

GRID = mesh(x=2, y=4)


def any_plan(draw, graph: Graph) -> GraphPlan:
    """A plan with any candidate for each operator and any layout for each source, however much that moves."""
    return chosen_plan(lambda some: draw(st.sampled_from(some)), graph)


def chosen_plan(choose: Callable[[list[Any]], Any], graph: Graph) -> GraphPlan:
    """The same with one that is chosen."""
    choices = Choices(graph, {}, scatter=True)
    operators = {name: choose(ways) for name, ways in choices.operators.items()}
    homes = {name: choose(layouts) for name, layouts in choices.storage_layouts.items()}
    for new, source in (graph.step.replaces if graph.step else {}).items():
        homes[source] = operators[new].output
    return GraphPlan(graph, operators, homes)


def assert_peaks_are_measured(found: GraphPlan) -> None:
    small = {name: 2.0**-6 if value.dtype.kind == "f" else 1 for name, value in values(found.graph).items()}
    given = {name: (value * small[name]).astype(np.float32) for name, value in values(found.graph).items()}
    if "epsilon" in given:
        given["epsilon"] = np.ones_like(given["epsilon"])
    done = found.on_engine(given)
    assert done.peaks == tuple(found.timeline.peaks)
    assert max(done.peaks) == found.peak == found.peak_moment.bytes == sum(found.peak_moment.held.values())


@examples(80)
@given(small_graphs(), st.data())
def test_any_plan_of_a_random_graph(graph, data):
    assert_peaks_are_measured(any_plan(data.draw, graph))


@st.composite
def trained(draw, uneven: bool | None = None) -> Graph:
    """A step of a program with one result: a matmul, then up to three operators, each on the one before."""
    graph = Graph(draw(st.sampled_from([2, 4, 6])), uneven=uneven)
    sizes = st.sampled_from([1, 3, 5, 7, 11] if uneven else [2, 4, 6, 12])
    graph.input("x", (draw(sizes), draw(sizes)))
    last = "x"
    for i, kind in enumerate(
        ["matmul", *draw(st.lists(st.sampled_from(["matmul", "relu", "add", "twice"]), max_size=3))]
    ):
        shape = graph.shapes[last]
        if kind == "matmul":
            graph.parameter(f"w{i}", (shape[1], draw(sizes)))
            last = graph.matmul(f"op{i}", last, f"w{i}")
        elif kind == "relu":
            last = graph.relu(f"op{i}", last)
        else:  # with an earlier tensor of the same shape, or with itself
            others = [name for name in graph.operators if graph.shapes[name] == shape]
            last = graph.add(f"op{i}", last, draw(st.sampled_from(others)) if kind == "add" else last)
    return training(graph, draw(st.sampled_from(["sgd", "momentum", "adam"])))


@examples(80)
@given(trained(), st.data())
def test_any_plan_of_a_random_training_step(step, data):
    assert_peaks_are_measured(any_plan(data.draw, step))


def test_an_operators_piece_is_freed_when_the_first_step_has_made_another():
    """An annotation may need several steps: here a slice, and a gather of what it left."""
    grid = mesh(a=2, b=2)
    graph = Graph(mesh=grid)
    graph.softmax("y", graph.input("x", (4, 4)))
    found = complete(graph, {"x": mesh_split((4, 4), grid, ("b", -1)), "y": mesh_split((4, 4), grid, (-1, "a"))}).plan
    assert [step.name for step in found.operators["y"].reduction] == ["slice", "all-gather"]
    assert found.peak == 4 * (8 + 4 + (2 * 4 + 8))  # x, the slice, both slices of a pair, and what they make
    assert_peaks_are_measured(found)


EXAMPLES = (megatron_mlp, swiglu, layer_norm, mixture_of_experts)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("example", EXAMPLES)
@examples(10)
@given(st.data())
def test_any_plan_of_the_examples(example, data):
    assert_peaks_are_measured(any_plan(data.draw, example(devices=4)))


@examples(100)
@given(pairs(partial=True), st.booleans())
def test_the_buffers_of_any_redistribution(two, named_only):
    assert_buffers_are_measured(*two, named_only)


def assert_buffers_are_measured(source: TensorLayout, target: TensorLayout, named_only: bool) -> None:
    moves = redistribute(source, target, named_only=named_only)
    pieces = {device: piece.astype(np.float32) for device, piece in summands(source).items()}
    predicted = np.full(source.devices, source.elements, dtype=np.int64)
    if moves.named_steps:
        predicted += most_elements(moves.named_steps)
    assert moves.on_engine(pieces).peaks == tuple(4 * predicted)


def on(shape: tuple[int, int], *dims) -> TensorLayout:
    return mesh_split(shape, GRID, dims)


BUFFERS = {
    "slice": (on((16, 16), "x", -1), on((16, 16), "x", "y"), 32),
    # 8 rows of 4 from each of 4 devices, and the new piece in which they are put in place
    "all-gather": (on((16, 16), "x", "y"), on((16, 16), "x", -1), 4 * 32 + 128),
    # the parts that are sent, and as many that arrive; then these and the new piece
    "all-to-all": (on((16, 16), "y", -1), on((16, 16), -1, "y"), 64 + 64),
    # the new piece, and one message of its size
    "permute": (on((16, 16), ("x", "y"), -1), on((16, 16), ("y", "x"), -1), 32 + 32),
}


@pytest.mark.parametrize("name", BUFFERS)
def test_the_buffers_of_each_kind_of_step(name):
    source, target, elements = BUFFERS[name]
    moves = redistribute(source, target)
    assert moves.names == (name,)
    assert most_elements(moves.named_steps).max() == elements


def test_the_peak_of_a_matmul_by_hand():
    """x in rows, w whole, on 8 devices; all others are 0 bytes: 8 rows of 64 in and out, and 64 x 64."""
    graph = one_matmul()
    graph.shard("matmul", ((8, 1), (1, 1)))
    found = plan(graph)
    assert (found.peak, found.peak_moment.operator, found.peak_moment.doing) == (20_480, "matmul", "computes")
    assert found.peak_moment.held == {"x": 2_048, "w": 16_384, "matmul": 2_048}


def test_a_tensor_is_there_until_its_last_reader_has_computed():
    """A chain of relus holds three tensors at a time, input included, however long it is."""

    def peak(length: int) -> int:
        graph = Graph(2)
        graph.input("x", (8, 8))
        for i in range(length):
            graph.relu(f"r{i}", f"r{i - 1}" if i else "x")
        graph.shard("r0", ((2, 1),))
        return propagate(graph).peak

    assert [peak(n) for n in (1, 2, 3, 9)] == [256, 384, 384, 384]


def test_a_result_that_others_read_is_there_to_the_end():
    """Named in `results`, on prime axes too; otherwise it ends with its last reader."""
    graph = Graph(1)
    graph.input("x", (8, 8))
    for i in range(4):
        graph.relu(f"r{i}", f"r{i - 1}" if i else "x")
    assert plan(graph).peak == 3 * 256
    graph.results = ("r0",)
    assert [plan(graph).peak, plan(graph.on_prime_axes()).peak] == [4 * 256, 4 * 256]
    assert "r0" in plan(graph).peak_moment.held
    assert_peaks_are_measured(plan(graph))


def test_a_step_holds_old_and_new_of_one_weight_at_a_time():
    """On one device, with Adam: weight, two averages and their next values, and the gradient, at the first update."""
    graph = Graph(1)
    graph.input("x", (2, 64))
    graph.parameter("w", (64, 64))
    graph.matmul("y", "x", "w")
    found = plan(training(graph, "adam"))
    moment = found.peak_moment
    assert (moment.operator, moment.doing) == ("w.state.new", "computes")
    weight = 64 * 64 * 4
    assert moment.held == {
        "x": 512, "y.target": 512, "w": weight, "w.state": 2 * weight, "w.grad": weight, "w.state.new": 2 * weight,
    }  # fmt: skip
    assert_peaks_are_measured(found)


def test_a_copy_that_two_operators_take_is_held_in_between():
    graph = Graph(mesh=mesh(x=4))
    graph.input("x", (8, 8))
    graph.parameter("w", (8, 8))
    graph.parameter("v", (8, 8))
    graph.matmul("a", "x", "w")
    graph.relu("between", "a")
    graph.matmul("b", "x", "v")
    graph.add("sum", "between", "b")
    whole = {name: mesh_split((8, 8), graph.mesh, (-1, -1)) for name in ("w", "v")}
    rows = mesh_split((8, 8), graph.mesh, ("x", -1))
    split = {"a": {"n": (0,)}, "between": {}, "b": {"n": (0,)}, "sum": {}}
    letters = {name: graph.operators[name].letters for name in split}
    operators = {}
    for name in split:
        column = letters[name][-1]
        operators[name] = arrange(graph.operators[name], graph.mesh, {column: (0,)})[-1]
    found = GraphPlan(graph, operators, {"x": rows, **whole})
    moments = MemoryTimeline(graph, found.operators, found.storage_layouts, found.fetches, remember_all=True).moments
    between = next(moment for moment in moments if moment.operator == "between")
    copy = "x for a, input 0"
    assert between.held[copy] == 8 * 8 * 4
    assert_peaks_are_measured(found)
    after = next(moment for moment in moments if moment.operator == "sum")
    assert copy not in after.held


def test_peaks_of_the_documented_network():
    graph = feed_forward()
    graph.shard("matmul1", ((2, 1), (1, 4)))
    assert_peaks_are_measured(propagate(graph))
