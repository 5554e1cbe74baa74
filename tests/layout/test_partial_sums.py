"""Partial sums as layouts: they flow through what is linear, and are added up once."""

from __future__ import annotations

import numpy as np
import pytest

from lib.layout import Graph, LayoutError, P, TensorLayout, code_of, complete, join, mesh, plan, redistribute
from lib.layout.examples import add_attention, vocabulary_loss
from tests.screens.texts import approved
from tests.support.layout_examples import add_mlp
from tests.support.layout_strategies import assert_same_program, summands
from tests.support.refusals import Refused

GRID = mesh(data=2, model=4)
BOTH = ("data", "model")


def assert_measured(found) -> None:
    given = {name: np.ones(found.graph.shapes[name], np.float32) for name in found.graph.sources}
    done = found.on_engine(given)
    assert done.sent == tuple(found.sent)
    assert done.peaks == tuple(found.timeline.peaks)
    assert_same_program(found)


def gradients() -> Graph:
    """The gradient of an attention's input: the sum of three products, of which each device has a summand."""
    graph = Graph(mesh=GRID)
    for name in "qkv":
        graph.input(f"d{name}", (128, 64))
        graph.parameter(f"w{name}", (64, 64))
        graph.matmul(f"g{name}", f"d{name}", f"w{name}", transpose_b=True)
    graph.add("dx", graph.add("sum", "gq", "gk"), "gv")
    return graph


HEADS = {f"{kind}{name}": P("data", "model") if kind == "d" else P(None, "model") for kind in "dw" for name in "qkv"}


def test_three_gradients_are_added_before_one_reduce_scatter() -> None:
    found = plan(gradients(), layouts={**HEADS, "dx": P(BOTH)})
    assert found.bytes == 98_304, "instead of 294,912"
    assert found.layout("sum").partial == (1,)
    assert [step.name for step in found.operators["dx"].reduction] == ["reduce-scatter"]
    assert_measured(found)


def test_two_products_take_one_all_reduce() -> None:
    graph = Graph(mesh=GRID)
    graph.input("x", (64, 64))
    for name in "ab":
        graph.matmul(name, "x", graph.parameter(f"w{name}", (64, 64)))
    graph.add("y", "a", "b")
    given = {"x": P("data", "model"), "wa": P("model"), "wb": P("model"), "y": P("data")}
    found = plan(graph, layouts=given)
    assert found.bytes == 98_304, "XLA takes 196,608"
    assert_measured(found)


def test_summands_flow_through_what_is_linear_and_not_through_the_rest() -> None:
    for kind, bytes_moved in {"negative": 49_152, "relu": 2 * 49_152}.items():
        graph = Graph(mesh=GRID)
        graph.input("x", (64, 64))
        for name in "ab":
            product = graph.matmul(name, "x", graph.parameter(f"w{name}", (64, 64)))
            graph.operator(kind, f"{name}2", graph.transpose(f"{name}1", product, (1, 0)))
        graph.add("y", "a2", "b2")
        given = {"x": P("data", "model"), "wa": P("model"), "wb": P("model"), "y": P("model", "data")}
        found = plan(graph, layouts=given)
        assert found.bytes == bytes_moved, kind
        assert_measured(found)


def test_a_result_is_never_left_partial() -> None:
    found = plan(gradients(), layouts=HEADS)
    assert not found.layout("dx").partial
    assert_measured(found)


def test_the_loss_of_a_split_vocabulary_never_gathers_its_logits() -> None:
    """A maximum of parts is completed like a sum: three reductions of 64 numbers, and what splits them."""
    graph = vocabulary_loss(GRID)
    ends = {"x": P("data"), "table": P("model"), "labels": P("data", "model"), "loss": P("data")}
    found = plan(graph, layouts=ends)
    assert found.bytes == 5 * 768
    assert found.operators["largest"].local.largest
    approved(
        "partial_sums", "the loss of a split vocabulary never gathers its logits", str(found.operators["largest"].local)
    )
    rng = np.random.default_rng(0)
    given = {name: rng.standard_normal(graph.shapes[name]).astype(np.float32) for name in graph.sources}
    done, alone = found.on_engine(given), graph.run(given)
    assert done.sent == tuple(found.sent)
    for name in ("largest", "loss"):
        assert np.allclose(done.value(name), alone[name], rtol=1e-4, atol=1e-4)
    compile(code_of(found, "jax"), "plan", "exec")


def language_model(words: int = 512) -> Graph:
    """One block of GPT between an embedding and the mean cross-entropy of its head, which share a table."""
    graph, batch, length, width = Graph(mesh=GRID), 4, 32, 64
    graph.input("tokens", (batch, length))
    graph.input("labels", (batch, length, words))
    graph.parameter("table", (words, width))
    x = add_attention(graph, "", graph.gather("embedded", "table", "tokens"), batch, length, 8, width)
    x = add_mlp(graph, "", x, width)
    graph.reduce_max("largest", graph.matmul("logits", x, "table", transpose_b=True), 2)
    graph.subtract("shifted", "logits", graph.reshape("most", "largest", (batch, length, 1)))
    graph.log("logs", graph.reduce_sum("total", graph.exp("raised", "shifted"), 2))
    graph.reduce_sum("chosen", graph.multiply("masked", "shifted", "labels"), 2)
    graph.reduce_mean("rows", graph.subtract("losses", "logs", "chosen"), 1)
    graph.reduce_mean("loss", "rows", 0)
    return graph


@pytest.mark.slow
def test_a_language_model_with_a_split_vocabulary() -> None:
    """Three all-reduces of 128x64 numbers, three of 128, one of the loss: as Shardy moves them, and by the plan."""
    columns, rows = P(None, "model"), P("model")
    ends = {"tokens": P("data"), "labels": P("data", None, "model"), "table": rows, "loss": P()}
    ends |= dict.fromkeys(("wq", "wk", "wv", "up"), columns) | dict.fromkeys(("wo", "down"), rows)
    assert complete(language_model(), ends).plan.bytes == 3 * 196_608 + 3 * 3_072 + 32 == 599_072
    found = plan(language_model(), layouts=ends)
    assert (found.bytes, found.at_least) == (596_096, None)
    whole = language_model()
    whole.shard("largest", ((2, 4, 1),))
    apart = plan(whole, layouts=ends)
    assert (apart.bytes, apart.at_least) == (791_168, None), "if a maximum had to be computed of whole rows"


def test_a_sum_of_all_elements_is_completed_on_every_device() -> None:
    partial = TensorLayout((), GRID, (), (0, 1))
    move = redistribute(partial, partial.full())
    assert move.bytes == 2 * 7 * 4
    assert move.run(summands(partial))[5] == sum(summands(partial).values())


def test_a_maximum_in_parts_is_joined_and_moved() -> None:
    layout = TensorLayout((8, 8), GRID, ((), ()), (0, 1), largest=True)
    rng = np.random.default_rng(0)
    pieces = {device: rng.standard_normal((8, 8)) for device in range(8)}
    whole = np.max(list(pieces.values()), axis=0)
    assert np.array_equal(join(pieces, layout), whole)
    for target in (layout.full(), TensorLayout((8, 8), GRID, ((0,), (1,))), TensorLayout((8, 8), GRID, ((1, 0), ()))):
        for named in (False, True):
            moved = redistribute(layout, target, named_only=named)
            assert np.array_equal(join(moved.run(pieces), target), whole)
        done = redistribute(layout, target).on_engine(pieces)
        assert np.array_equal(done.value("tensor"), whole)


def test_a_sum_over_two_axes_becomes_one_over_one_axis() -> None:
    source = TensorLayout((16, 16), GRID, ((), ()), (0, 1))
    target = TensorLayout((16, 16), GRID, ((1,), ()), (0,))
    for named in (False, True):
        move = redistribute(source, target, named_only=named)
        assert [step.name for step in move.steps] == ["reduce-scatter"]
        assert move.bytes == 8 * 3 * 16 * 16 // 4 * 4
    pieces = summands(source)
    moved = redistribute(source, TensorLayout((16, 16), GRID, ((), (1,)), (0,))).run(pieces)
    for device, piece in moved.items():
        row, column = divmod(device, 4)
        mine = sum(pieces[row * 4 + other] for other in range(4))
        assert np.array_equal(piece, mine[:, column * 4 : column * 4 + 4])
    with Refused("sums differ", error=LayoutError):
        redistribute(target, source)
