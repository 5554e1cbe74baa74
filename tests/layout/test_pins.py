"""Pinned layouts: the fewest bytes with the ends given, as an independent integer program finds them too."""

from __future__ import annotations

import numpy as np
import pytest

from lib.layout import Graph, LayoutError, P, TensorLayout, complete, mesh, mesh_split, plan, propagate, training
from lib.layout.examples import add_attention, feed_forward
from lib.layout.notation import graph_from_data, graph_to_data
from tests.screens.texts import approved
from tests.support.layout_examples import add_mlp
from tests.support.layout_strategies import assert_same_program, values
from tests.support.refusals import Refused

GRID = mesh(data=2, model=4)
BOTH = ("data", "model")
ROWS, COLUMNS, SEQUENCE = P(BOTH, None), P(None, "model"), P("data", "model", None)


def mlp(tokens: int = 128) -> Graph:
    graph = Graph(mesh=GRID)
    graph.input("x", (tokens, 64))
    graph.parameter("w1", (64, 256))
    graph.parameter("w2", (256, 64))
    graph.matmul("out", graph.relu("h", graph.matmul("up", "x", "w1")), "w2")
    return graph


def attention() -> Graph:
    graph = Graph(mesh=GRID)
    graph.input("x", (4, 32, 64))
    add_attention(graph, "", "x", 4, 32, 8, 64)
    return graph


def block() -> Graph:
    graph = attention()
    add_mlp(graph, "", "attended", 64)
    return graph


TENSOR = {"w1": COLUMNS, "w2": P("model", None)}
HEADS = {"x": SEQUENCE, "wq": COLUMNS, "wk": COLUMNS, "wv": COLUMNS, "wo": P("model", None)}
CASES = {
    "FSDP": (mlp, {"x": ROWS, "w1": ROWS, "w2": ROWS, "out": ROWS}, 425_984),
    "tensor parallel, result by rows": (mlp, {"x": P("data", None), **TENSOR, "out": ROWS}, 98_304),
    "tensor parallel, x and result by rows": (mlp, {"x": ROWS, **TENSOR, "out": ROWS}, 196_608),
    "attention, sequence split in and out": (attention, {**HEADS, "attended": SEQUENCE}, 196_608),
    "block, sequence split in and out": (
        block,
        {**HEADS, "up": COLUMNS, "down": P("model", None), "added": SEQUENCE},
        393_216,
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES)
def test_the_fewest_bytes_with_the_ends_given(case: str) -> None:
    build, layouts, least = CASES[case]
    found = plan(build(), layouts=layouts)
    assert found.bytes == least
    for name, axes in layouts.items():
        assert found.layout(name) == mesh_split(found.graph.shapes[name], GRID, axes), name


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", list(CASES)[:3])
def test_an_integer_program_finds_the_same(case: str) -> None:
    from tests.support.layout_integer_program import least_bytes

    build, layouts, least = CASES[case]
    graph = build()
    axes = {name: mesh_split(graph.shapes[name], GRID, given).tensor_map for name, given in layouts.items()}
    assert least_bytes(graph, axes) == least


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(40))
def test_random_pins_on_random_networks_cost_what_an_integer_program_finds(seed: int) -> None:
    from tests.support.layout_integer_program import least_bytes

    rng = np.random.default_rng(seed)
    graph = Graph(mesh=mesh(a=2, b=2))
    tensors = [graph.input("x", (8, 16))]
    for i in range(int(rng.integers(1, 5))):
        x = tensors[int(rng.integers(len(tensors)))]
        kind = rng.choice(["matmul", "add", "relu"])
        if kind == "matmul":
            w = graph.parameter(f"w{i}", (16, 16))
            tensors.append(graph.matmul(f"t{i}", x, w))
        elif kind == "add":
            tensors.append(graph.add(f"t{i}", x, tensors[int(rng.integers(len(tensors)))]))
        else:
            tensors.append(graph.relu(f"t{i}", x))
    choices = [P(), P("a"), P("b"), P(None, "a"), P("a", "b"), P(("a", "b")), P(("b", "a")), P(None, ("a", "b"))]
    layouts = {name: choices[rng.integers(len(choices))] for name in graph.shapes if rng.random() < 0.7}
    axes = {
        name: mesh_split(graph.shapes[name], graph.mesh, [*p, *[None] * (2 - len(p))]) for name, p in layouts.items()
    }
    found = plan(graph, layouts=layouts)
    least = least_bytes(graph, {name: layout.tensor_map for name, layout in axes.items()})
    copied = (
        "from the copy of" in found.explain()
    )  # the integer program moves every input from where its tensor is kept
    assert found.bytes <= least if copied else found.bytes == least
    assert_same_program(found)


def test_a_plan_with_pins_runs_on_the_engine_as_predicted() -> None:
    build, layouts, _ = CASES["FSDP"]
    found = plan(build(), layouts=layouts)
    given = {name: value.astype(np.float32) for name, value in values(found.graph).items()}
    done = found.on_engine(given)
    assert done.sent == tuple(found.sent)
    assert done.peaks == tuple(found.timeline.peaks)
    assert np.array_equal(done.value("out"), found.graph.run(given)["out"])


def test_the_rule_and_completion_keep_pins() -> None:
    graph = mlp()
    for name, layout in {"x": ROWS, **TENSOR, "out": ROWS}.items():
        graph.pin(name, layout)
    graph.shard("up", ((2, 1), (1, 4)))
    for found in (propagate(graph), complete(graph, {}).plan):
        assert {name: found.layout(name) for name in graph.pins} == graph.pins
        assert_same_program(found)
    assert propagate(graph).bytes == 196_608


def test_completion_takes_the_cheaper_of_two_claims() -> None:
    """`y` could be split as `a` or as `b`; one exchange is cheaper than gathering both."""
    graph = Graph(mesh=GRID)
    for name in "ab":
        graph.input(name, (64, 64))
    graph.relu("z", graph.add("y", "a", "b"))
    done = complete(graph, {"a": P("model"), "b": P(None, "model")})
    (chosen,) = [conflict for conflict in done.conflicts if "which moves fewer bytes" in conflict.outcome]
    approved("pins", "completion takes the cheaper of two claims", chosen.outcome)
    assert done.plan.bytes == 24_576, "an all-to-all; with `y` whole, two all-gathers move 196,608"
    assert_same_program(done.plan)


def test_pins_come_back_from_data_and_stay_in_a_training_step() -> None:
    graph = mlp()
    graph.pin("w1", ROWS)
    again = graph_from_data(graph_to_data(graph))
    assert again.pins == graph.pins == training(graph).pins
    assert graph_from_data({**graph_to_data(graph), "pins": {"w1": [["data", "model"], ""]}}).pins == graph.pins
    assert plan(training(graph, "sgd")).layout("w1.new").tensor_map == ((0, 1), ())
    network = feed_forward()
    network.pin("weight1", TensorLayout((64, 64), GRID, ((1,), ())))
    assert graph_from_data(graph_to_data(network)).pins == network.pins


def test_a_plan_leaves_the_graph_without_the_pins_of_its_call() -> None:
    graph = mlp()
    plan(graph, layouts={"x": ROWS})
    assert graph.pins == {}


REFUSED = [
    ({"w3": ROWS}, "a layout names a tensor 'w3' that is not in the graph; there are x, w1, w2"),
    ({"x": "data"}, "the layout of 'x' must be a layout, such as mesh_split returns; got 'data'; P("),
    ({"x": P("rows")}, "the layout of 'x': the device matrix 2x4 has no axis 'rows'"),
    ({"x": P(None, None, "data")}, "the layout of 'x' has 3 entries, the tensor of shape (128, 64) has 2 dimensions"),
    ({"x": P("data", "data")}, "an axis can split only one dimension, once"),
    ({"x": mesh_split((64, 64), GRID, (-1, -1))}, "'x' has shape (128, 64); its layout is for (64, 64)"),
    ({"out": TensorLayout((128, 64), GRID, ((), ()), (0,))}, "is a partial sum; give the layout of the completed sum"),
    ([ROWS], "layouts are a dictionary of layouts by tensor name"),
]


@pytest.mark.parametrize(("layouts", "sentence"), REFUSED)
def test_what_cannot_be_pinned_is_refused(layouts: object, sentence: str) -> None:
    with pytest.raises(LayoutError) as refusal:
        plan(mlp(), layouts=layouts)  # type: ignore[arg-type]
    assert sentence in str(refusal.value)


def test_axes_need_a_mesh() -> None:
    with Refused("axes without mesh", error=LayoutError):
        plan(feed_forward(), layouts={"x": P("data")})


def test_completion_lets_what_is_upstream_decide_first_where_that_is_cheaper() -> None:
    """From both ends at the same time, the hidden activations meet in two layouts, and 491,520 bytes move."""
    build, layouts, least = CASES["tensor parallel, result by rows"]
    done = complete(build(), layouts)
    assert [str(done.layouts[name]) for name in ("up", "h")] == ["[data, model] on 2x4"] * 2
    assert done.plan.bytes == least
    assert_same_program(done.plan)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("case", "shardy"),
    [
        ("FSDP", 917_504),
        ("tensor parallel, result by rows", 196_608),
        ("attention, sequence split in and out", 589_824),
        ("block, sequence split in and out", 884_736),
    ],
)
def test_completion_moves_no_more_than_shardy_with_these_ends(case: str, shardy: int) -> None:
    """With x by rows as well, it gathers the weights: 720,896 bytes, where Shardy moves 294,912."""
    build, layouts, _ = CASES[case]
    assert complete(build(), layouts).plan.bytes <= shardy
