"""Layouts: device matrix, tensor map, which device holds what, and partial sums."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given

from lib.layout import (
    DeviceMatrix,
    Graph,
    LayoutError,
    P,
    TensorLayout,
    code_of,
    complete,
    cut,
    distribute,
    join,
    mesh,
    mesh_split,
    plan,
    redistribute,
    replicate,
    same_placement,
    shard,
    split,
)
from lib.layout.examples import add_attention, one_matmul, vocabulary_loss
from tests.screens.texts import approved
from tests.support.examples import examples
from tests.support.layout_examples import add_mlp
from tests.support.layout_strategies import assert_same_program, eight_devices, numbers, pairs, summands
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


MATRIX = DeviceMatrix((2, 4))

REFUSED = [
    (lambda: TensorLayout((8, 8), MATRIX, ((0,), (0,))), r"axis 0 of the device matrix 2x4 is named 2 times"),
    (lambda: TensorLayout((8, 8), MATRIX, ((0,), ()), (0,)), r"axis 0 of the device matrix 2x4 is named 2 times"),
    (lambda: TensorLayout((8, 8), MATRIX, ((2,), ())), r"there is no axis 2: the device matrix 2x4 has 2 axes"),
    (
        lambda: TensorLayout((8, 8), MATRIX, ((0,),)),
        r"the tensor map has 1 entries; the tensor of shape \(8, 8\) has 2",
    ),
    (lambda: TensorLayout((0,), MATRIX, ((),)), r"is at least 1; got \(0,\)"),
    (lambda: TensorLayout((8,), MATRIX, ((),)).part(8), r"no device 8: the device matrix 2x4 has 0-7"),
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
    (lambda: TensorLayout(8, MATRIX, (0,)), "the shape of a tensor is a tuple of whole numbers; got 8"),
    (lambda: TensorLayout((8,), MATRIX, ("x",)), "an entry of a tensor map is the number of an axis.*; got 'x'"),
    (lambda: TensorLayout((8,), MATRIX, (0.5,)), "an entry of a tensor map is the number of an axis.*; got 0.5"),
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


# === Partial sums ===


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
