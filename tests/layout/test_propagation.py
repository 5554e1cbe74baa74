"""Propagation: the breadth-first rule, the exact plan under caps, completion of annotations, and pins."""

import random
import re
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from docs.generate import mindspore, mindspore_page
from lib.layout import (
    Graph,
    GraphPlan,
    LayoutError,
    P,
    TensorLayout,
    compared,
    complete,
    cut,
    join,
    mesh,
    mesh_split,
    plan,
    propagate,
    redistribute,
    replicate,
    same_placement,
    split,
    training,
)
from lib.layout.choices import Choices, Objective
from lib.layout.exact import USUAL_FLOPS
from lib.layout.examples import add_attention, attention, boundary, embedding_and_head, feed_forward, megatron_mlp
from lib.layout.graph import strategy_text
from lib.layout.notation import graph_from_data, graph_to_data
from tests.oracles.mindspore_networks import SETTINGS, agreement, data, graph_of, remembering_costs
from tests.oracles.mindspore_pairs import beside_ours, layouts, least_of_mindspore, pairs
from tests.screens.texts import approved
from tests.support.examples import examples
from tests.support.layout_examples import add_mlp, transformer
from tests.support.layout_strategies import assert_same_program, every_plan, least_memory, values
from tests.support.refusals import Refused
from tests.test_imports import ROOT


def configured_ffn() -> Graph:
    graph = feed_forward()
    graph.shard("matmul1", ((2, 1), (1, 4)))
    return graph


def test_the_network_of_the_documentation_matches_its_ir():
    found = propagate(configured_ffn())
    assert {name: strategy_text(op.strategy) for name, op in found.operators.items()} == {
        "matmul1": "((2,1),(1,4))",
        "add1": "((2,4),(4))",
        "relu": "((2,4))",
        "matmul2": "((2,4),(4,1))",
        "add2": "((2,4),(4))",
    }
    local = {name: (*(i.local_shape for i in op.inputs), op.local.local_shape) for name, op in found.operators.items()}
    assert local["matmul1"] == ((32, 64), (64, 16), (32, 16))
    assert local["matmul2"] == ((32, 16), (16, 64), (32, 64))
    assert [step.name for step in found.operators["matmul2"].reduction] == ["all-reduce"]
    (after,) = (edge for edge in found.edges if str(edge) == "matmul2 -> add2")
    assert (found.redistribution(after).names, after.source.local_shape, after.target.local_shape) == (
        ("slice",), (32, 64), (32, 16)
    )  # fmt: skip
    assert found.bytes == 98_304
    approved("propagation", "the network of the documentation matches its ir", found.paying())
    approved(
        "propagation",
        "the network of the documentation matches its ir, 2",
        found.explain(),
        "matmul2: all-reduce, 98,304 bytes,",
    )


WHOLE = 64 * 64 * 4


def test_the_plan_below_the_all_reduced_one_is_this():
    found = plan(configured_ffn(), tensor_caps={"weight2": WHOLE // 4})
    matmul2 = found.operators["matmul2"]
    assert strategy_text(matmul2.strategy) == "((2,2),(2,2))"
    assert [(step.name, int(step.received.sum()) * 4) for step in matmul2.reduction] == [("reduce-scatter", 16_384)]
    assert [(str(edge), edge.bytes) for edge in found.edges if edge.bytes] == [("relu -> matmul2", 16_384)]


EXAMPLES = [feed_forward, megatron_mlp, attention, embedding_and_head, pytest.param(boundary, marks=pytest.mark.slow)]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("example", EXAMPLES)
def test_plans_of_the_examples_run_and_the_exact_one_never_moves_more(example):
    graph = example()
    first = next(iter(graph.operators.values()))
    for strategy in (((8, 1, 1), (1, 1)), ((1, 1, 2), (2, 4)), ((2, 1), (1, 4)), ((1, 1, 1), (1, 8))):
        try:
            graph.shard(first.name, strategy)
        except LayoutError:
            continue
        broad, exact = propagate(graph), plan(graph)
        assert exact.bytes <= broad.bytes
        assert plan(graph, memory_cap=broad.memory).bytes <= broad.bytes
        assert_same_program(broad)
        assert_same_program(exact)


def propagated(graph: Graph) -> GraphPlan | None:
    """None if some operators share only the input with the configured one."""
    try:
        return propagate(graph)
    except LayoutError:
        return None


@st.composite
def small_graphs(draw) -> Graph:
    """Up to three operators on 2 to 6 devices, the later ones on any tensor that fits."""
    graph = Graph(draw(st.sampled_from([2, 4, 6])))
    sizes = st.sampled_from([2, 4, 6, 12])
    rows, width = draw(sizes), draw(sizes)
    graph.input("x", (rows, width))
    tensors = ["x"]
    for i in range(draw(st.integers(1, 3))):
        kind, on = draw(st.sampled_from(["matmul", "relu", "add", "transpose"])), draw(st.sampled_from(tensors))
        name = f"op{i}"
        if kind == "matmul":
            graph.parameter(f"w{i}", (graph.shapes[on][1], draw(sizes)))
            graph.matmul(name, on, f"w{i}")
        elif kind == "add":
            graph.add(name, on, draw(st.sampled_from([t for t in tensors if graph.shapes[t] == graph.shapes[on]])))
        else:
            graph.operator(kind, name, on, **({"order": (1, 0)} if kind == "transpose" else {}))
        tensors.append(name)
    return graph


@examples(60)
@given(small_graphs(), st.data())
def test_the_exact_plan_is_what_brute_force_finds(graph, data):
    name = data.draw(st.sampled_from(list(graph.operators)))
    operator = graph.operators[name]
    from lib.layout.graph import candidates

    graph.shard(name, data.draw(st.sampled_from([c.strategy for c in candidates(graph, operator)])))
    choices = Choices(graph, {}, scatter=True)
    low = least_memory(choices)
    free = plan(graph)
    assert_same_program(free)
    broad = propagated(graph)
    if broad is not None:
        assert plan(graph, every_split=True).bytes <= broad.bytes  # the rule may leave devices unused
        assert_same_program(broad)
    cap = data.draw(st.integers(low, max(low, free.memory)))
    capped = plan(graph, memory_cap=cap)
    assert capped.memory <= cap
    ways = [*choices.operators.values(), *choices.storage_layouts.values()]
    if prod(map(len, ways)) <= 3000:
        every = list(every_plan(choices))
        assert free.bytes == min(each.bytes for each in every)
        computing = Objective.of_graph(graph, USUAL_FLOPS)
        fitting = [computing.of_plan(each) for each in every if each.memory <= cap]
        assert computing.of_plan(capped) == min(fitting)


def several_readers(devices: int, readers: int, width: int = 4, columns: int = 4) -> Graph:
    """A tensor that several matmuls take."""
    graph = Graph(devices)
    graph.input("x", (4, width))
    graph.relu("relu", "x")
    for i in range(readers):
        graph.parameter(f"w{i}", (width, columns))
        graph.matmul(f"matmul{i}", "relu", f"w{i}")
    return graph


def test_a_tensor_that_several_operators_take_in_one_layout_moves_once():
    """q, k and v of attention: the rows that they need are gathered once, not three times."""
    graph = attention()
    for name in "qkv":
        graph.shard(name, ((1, 1, 1), (1, 8)))
    graph.shard("attended", ((4, 2, 1), (4, 2, 1)))
    moving = GraphPlan(
        graph, propagate(graph).operators, {**propagate(graph).storage_layouts, "x": rows_over_all(graph)}
    )
    edges = [edge for edge in moving.edges if edge.tensor == "x"]
    assert [(edge.operator, edge.bytes, edge.moved_for) for edge in edges] == [
        ("q", 8 * 7 * 512 * 4, ""), ("k", 0, "q"), ("v", 0, "q"), ("attended", 0, ""),
    ]  # fmt: skip
    assert moving.bytes == int(moving.sent.sum()) == int(moving.received.sum())
    approved(
        "propagation", "a tensor that several operators take in one layout moves once", moving.explain(), "x -> k: as"
    )
    assert_same_program(moving)
    done = moving.on_engine({name: value.astype(np.float32) for name, value in values(graph).items()})
    assert done.sent == tuple(moving.sent)


def rows_over_all(graph: Graph) -> TensorLayout:
    return mesh_split(graph.shapes["x"], mesh(a=4, b=2), ("a", "b", -1))


@pytest.mark.parametrize("readers", [2, 3])
def test_the_exact_plan_with_shared_moves_is_what_plans_one_by_one_find(readers):
    """Independent of the planner's tables: the bytes of every plan that can be made of the candidates."""
    graph = several_readers(2, readers)
    graph.shard("relu", ((2, 1),))
    for i in range(readers):
        graph.shard(f"matmul{i}", ((1, 1), (1, 2)))
    least = min(each.bytes for each in every_plan(Choices(graph, {}, scatter=True)))
    found = plan(graph)
    assert found.bytes == least == 2 * 8 * 4  # each device gets the other half, once
    assert_same_program(found)


def test_sharing_decides_which_plan_is_cheapest():
    """Each alone would rather exchange 64 bytes and scatter a sum of 32 than gather 128; three share the gather."""
    graph = several_readers(2, 3, width=8, columns=2)
    graph.shard("relu", ((2, 1),))
    caps = {f"w{i}": 8 * 2 * 4 // 2 for i in range(3)}
    found = plan(graph, tensor_caps=caps)
    assert [edge.bytes for edge in found.edges if edge.tensor == "relu"] == [128, 0, 0]
    assert found.bytes == 128
    assert_same_program(found)


def test_the_rule_reaches_parts_that_share_only_a_weight():
    graph = Graph(4)
    graph.parameter("w", (8, 8))
    for name in ("one", "two"):
        graph.relu(f"{name}_relu", graph.matmul(name, graph.input(f"{name}_x", (8, 8)), "w"))
    graph.shard("one", ((1, 1), (1, 4)))
    found = propagate(graph)
    assert found.operators["two"].inputs[1] == found.operators["one"].inputs[1] == found.storage_layouts["w"]
    assert found.bytes == 0
    assert_same_program(found)


def test_an_out_strategy_reduce_scatters_what_would_be_all_reduced():
    """As MindSpore's out-strategy: half the bytes of the all-reduce, and each device keeps a part of the sum."""
    graph = megatron_mlp()
    graph.shard("matmul1", ((2, 1), (1, 4)))
    graph.shard("matmul2", ((2, 4), (4, 1)))
    assert propagate(graph).bytes == 98_304
    graph.shard("matmul2", ((2, 4), (4, 1)), out=(8, 1))
    found = propagate(graph)
    matmul2 = found.operators["matmul2"]
    assert [step.name for step in matmul2.reduction] == ["reduce-scatter"]
    assert (matmul2.output.splits, found.bytes) == ((8, 1), 49_152)
    assert plan(graph, memory_cap=found.memory, scatter=False).operators["matmul2"].output.splits == (8, 1)
    assert_same_program(found)
    graph.shard("matmul2", ((2, 4), (4, 1)))
    assert (graph.outs, propagate(graph).bytes) == ({}, 98_304)


def test_an_out_strategy_on_a_mesh():
    graph = transformer(1, mesh(data=2, model=2), batch=4, length=4, heads=4, width=8)
    graph.shard("l0.matmul2", ((2, 1, 2), (2, 1)), out=(2, 2, 1))
    found = plan(graph)
    assert found.operators["l0.matmul2"].output.splits == (2, 2, 1)
    assert_same_program(found)


@pytest.mark.slow
def test_the_exact_plan_follows_a_cap_step_by_step():
    """Every cap between the least and the freest plan's memory: never worse with more memory, always within."""
    graph = configured_ffn()
    before = None
    for cap in range(16_448, 40_000, 1_139):
        found = plan(graph, memory_cap=cap)
        assert found.memory <= cap
        assert before is None or found.bytes <= before
        before = found.bytes
    assert before is not None
    assert plan(graph, memory_cap=39_232).bytes == 12_288


@pytest.mark.slow
def test_eight_layers_on_64_devices_under_a_cap_on_all_memory():
    graph = transformer(8, mesh(data=8, model=8))
    free = plan(graph)
    by_weights = plan(graph, tensor_caps={name: int(np.prod(graph.shapes[name])) // 4 for name in weights(graph)})
    capped = plan(graph, memory_cap=by_weights.memory)
    assert free.bytes == 0  # rows everywhere, and every weight on every device
    assert capped.memory <= by_weights.memory < free.memory
    assert 0 < capped.bytes <= by_weights.bytes
    smallest = sum(int(np.prod(shape)) * graph.itemsize for shape in graph.shapes.values()) // 64  # nothing twice
    with pytest.raises(LayoutError, match=f"the smallest possible is {smallest:,}"):
        plan(graph, memory_cap=smallest - 1)
    assert plan(graph, memory_cap=smallest).memory == smallest


def weights(graph: Graph) -> list[str]:
    return [name for name, role in graph.sources.items() if role == "parameter"]


def test_plans_on_a_mesh_run_too():
    graph = transformer(1, mesh(data=2, model=2), batch=4, length=4, heads=4, width=8)
    caps = {name: 8 * 8 // 4 * 2 * 4 for name, role in graph.sources.items() if role == "parameter"}
    found = plan(graph, tensor_caps=caps)
    assert found.bytes > 0
    assert_same_program(found)


GRID = mesh(data=2, model=4)


def annotated(**dims: tuple) -> dict[str, TensorLayout]:
    shapes = megatron_mlp().shapes
    return {name: mesh_split(shapes[name], GRID, mapping) for name, mapping in dims.items()}


def test_two_annotations_make_the_megatron_layout():
    completion = complete(megatron_mlp(), annotated(x=("data", -1), up=(-1, "model")))
    assert completion.conflicts == ()
    assert {name: str(layout) for name, layout in completion.layouts.items()} == {
        "x": "[data, -] on 2x4",
        "up": "[-, model] on 2x4",
        "down": "[model, -] on 2x4",
        "matmul1": "[data, model] on 2x4",
        "gelu": "[data, model] on 2x4",
        "matmul2": "[data, -] on 2x4",
        "residual": "[data, -] on 2x4",
    }
    assert completion.plan.bytes == 98_304
    assert_same_program(completion.plan)


def test_annotations_spread_backwards():
    completion = complete(megatron_mlp(), annotated(residual=("data", "model")))
    assert str(completion.layouts["down"]) == "[-, model] on 2x4"
    assert str(completion.layouts["x"]) == "[data, model] on 2x4"
    assert_same_program(completion.plan)


def test_conflicts_are_named():
    completion = complete(megatron_mlp(), annotated(x=("data", -1), residual=("model", -1)))
    approved("propagation", "conflicts are named", str(completion.conflicts[0]))
    assert_same_program(completion.plan)


def test_an_axis_wanted_twice_in_one_operator_is_named():
    completion = complete(megatron_mlp(), annotated(x=(-1, "model"), up=(-1, "model"), gelu=("data", "model")))
    told = "\n".join(map(str, completion.conflicts))
    approved("propagation", "an axis wanted twice in one operator is named", told, "matmul1: 'x' splits 'k'")
    assert_same_program(completion.plan)


def test_an_annotation_that_the_operator_does_not_yield_is_reached_by_redistribution():
    completion = complete(megatron_mlp(), annotated(x=("data", -1), matmul2=(-1, "data")))
    assert str(completion.layouts["matmul2"]) == "[-, data] on 2x4"
    assert completion.plan.layout("matmul2") == completion.layouts["matmul2"]
    assert_same_program(completion.plan)


def test_an_operator_is_computed_where_its_inputs_are_if_moving_its_output_is_cheaper():
    """Tokens to experts: masks and tokens live by groups, what is sent to the experts by experts. To compute it there
    every device would gather all tokens, 3 x 512 bytes, and its part of the masks; to send it is 384 bytes."""
    graph = Graph(mesh=mesh(devices=4))
    graph.input("mask", (4, 8, 4, 2))
    graph.input("tokens", (4, 8, 16))
    graph.einsum("sent", "mask", "tokens", spec="gsec,gsm->egcm")
    annotations = {name: mesh_split(graph.shapes[name], graph.mesh, {0: 0}) for name in graph.shapes}
    completion = complete(graph, annotations)
    (step,) = completion.plan.operators["sent"].reduction
    assert (step.name, completion.plan.bytes) == ("all-to-all", 4 * 384)
    assert [str(conflict) for conflict in completion.conflicts] == []
    assert_same_program(completion.plan)


@examples(60)
@given(st.data())
def test_annotations_do_not_change_what_the_program_computes(data):
    graph = data.draw(st.sampled_from([megatron_mlp(), attention(), embedding_and_head()]))
    names = data.draw(st.lists(st.sampled_from(sorted(graph.shapes)), min_size=1, max_size=3, unique=True))
    annotations = {}
    for name in names:
        dims = len(graph.shapes[name])
        where = data.draw(st.lists(st.integers(0, dims), min_size=2, max_size=2))
        mapping: list = [[] for _ in range(dims + 1)]
        for axis, dim in zip(("data", "model"), where):
            mapping[dim].append(axis)
        try:
            annotations[name] = mesh_split(graph.shapes[name], GRID, mapping[:dims])
        except LayoutError:
            annotations[name] = mesh_split(graph.shapes[name], GRID, [-1] * dims)
    assert_same_program(complete(graph, annotations).plan)


def test_the_words_of_gshard_and_gspmd_go_together():
    """replicate, split and mesh_split make matrices of their own; on 8 devices all are spelled on 2x2x2."""
    annotations = {
        "x": split(SHAPES["x"], 0, 2, devices=8),
        "up": mesh_split(SHAPES["up"], GRID, (-1, "model")),
        "down": replicate(SHAPES["down"], 8),
        "residual": split(SHAPES["residual"], 0, 4, devices=8),
    }
    completion = complete(megatron_mlp(), annotations)
    for name, layout in annotations.items():
        assert same_placement(completion.layouts[name], layout), name
        assert str(completion.layouts[name].matrix) == "2x2x2"
    assert_same_program(completion.plan)
    only = complete(megatron_mlp(), {"x": replicate(SHAPES["x"], 8), "up": split(SHAPES["up"], 1, 8)})
    assert str(only.layouts["down"]) == "[x, -] on 8"
    assert only.plan.layout("x").elements == 64 * 64


def two_by_three() -> tuple[Graph, dict[str, TensorLayout]]:
    graph = Graph(6)
    graph.relu("y", graph.input("x", (6, 6)))
    one, two = mesh(a=2, b=3), mesh(a=3, b=2)
    return graph, {"x": mesh_split((6, 6), one, ("a", "b")), "y": mesh_split((6, 6), two, ("a", "b"))}


def lonely() -> Graph:
    graph = configured_ffn()
    graph.relu("alone", graph.input("other", (8, 8)))
    return graph


SHAPES = megatron_mlp().shapes

REFUSED = [
    (lambda: propagate(None), "only a Graph can be planned; got None"),
    (lambda: plan("ffn"), "only a Graph can be planned; got 'ffn'"),
    (
        lambda: plan(configured_ffn(), memory_cap="40000"),
        "a memory cap is a whole number of bytes per device, such as 40_000; got '40000'",
    ),
    (lambda: plan(configured_ffn(), memory_cap=4e4), "a memory cap is a whole number of bytes"),
    (lambda: plan(configured_ffn(), memory_cap=float("nan")), "such as 40_000; got nan"),
    (
        lambda: plan(configured_ffn(), tensor_caps={"weight2": None}),
        "the cap of 'weight2' is a whole number of bytes, such as 4096; got None",
    ),
    (lambda: plan(configured_ffn(), tensor_caps=["weight2"]), "by name, such as {'weight2': 4096}; got ['weight2']"),
    (
        lambda: feed_forward().shard("matmul2", ((2, 4), (4, 1)), out=(4, 1)),
        "matmul2: the strategy ((2,4),(4,1)) cannot leave the output of shape (64, 64) in parts (4, 1); it can leave",
    ),
    (lambda: feed_forward().shard("matmul2", ((2, 4), (4, 1)), out=8), "a whole number for each dimension"),
    (lambda: feed_forward().shard("relu", ((8, 1),), out=(1, 8)), "it can leave (8, 1)"),
    (lambda: complete(None, {}), "only a Graph can be planned"),
    (lambda: complete(megatron_mlp(), ["up"]), "layouts by tensor name; got ['up']"),
    (lambda: propagate(feed_forward()), "no operator is configured; give one a strategy with graph.shard"),
    (lambda: propagate(lonely()), "'alone' is not connected"),
    (
        lambda: plan(configured_ffn(), memory_cap=100),
        "no plan fits into 100 bytes on each device; the smallest possible is 16,448",
    ),
    (
        lambda: plan(configured_ffn(), tensor_caps={"weight2": 100}),
        "needs more than 100 bytes of 'weight2' on each device; the smallest possible is 2,048",
    ),
    (
        lambda: plan(configured_ffn(), tensor_caps={"add2": 100}),
        "'add2' does not fit into 100 bytes on each device; the smallest possible is 2,048",
    ),
    (
        lambda: plan(configured_ffn(), tensor_caps={"weight": 1}),
        "'weight' that is not in the graph; did you mean 'weight",
    ),
    (lambda: complete(megatron_mlp(), {}), "nothing is annotated"),
    (
        lambda: complete(megatron_mlp(), {"gelo": annotated(x=(-1, -1))["x"]}),
        "'gelo' that is not in the graph; did you mean 'gelu'?",
    ),
    (
        lambda: complete(megatron_mlp(), {"up": annotated(x=(-1, -1))["x"]}),
        "'up' has shape (64, 256); its annotation is for (64, 64)",
    ),
    (
        lambda: complete(megatron_mlp(), {"up": ("data", -1)}),
        "the annotation of 'up' must be a layout, such as mesh_split returns; got ('data', -1)",
    ),
    (lambda: complete(megatron_mlp(4), annotated(x=(-1, -1))), "the annotation of 'x' has 8 devices, the graph 4"),
    (
        lambda: complete(megatron_mlp(), {"x": TensorLayout((64, 64), GRID, ((), ()), (0,))}),
        "the annotation of 'x' is a partial sum",
    ),
    (
        lambda: complete(*two_by_three()),
        "'x' is annotated on 2x3 and 'y' on 3x2, which have no common refinement; annotate on one",
    ),
]


@pytest.mark.parametrize(("act", "sentence"), REFUSED)
def test_what_cannot_be_planned_is_refused_in_one_sentence(act, sentence):
    with pytest.raises(LayoutError) as refusal:
        act()
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


# === Pinned layouts: the fewest bytes with the ends given ===


BOTH = ("data", "model")
ROWS, COLUMNS, SEQUENCE = P(BOTH, None), P(None, "model"), P("data", "model", None)


def mlp(tokens: int = 128) -> Graph:
    graph = Graph(mesh=GRID)
    graph.input("x", (tokens, 64))
    graph.parameter("w1", (64, 256))
    graph.parameter("w2", (256, 64))
    graph.matmul("out", graph.relu("h", graph.matmul("up", "x", "w1")), "w2")
    return graph


def pinned_attention() -> Graph:
    graph = Graph(mesh=GRID)
    graph.input("x", (4, 32, 64))
    add_attention(graph, "", "x", 4, 32, 8, 64)
    return graph


def block() -> Graph:
    graph = pinned_attention()
    add_mlp(graph, "", "attended", 64)
    return graph


TENSOR = {"w1": COLUMNS, "w2": P("model", None)}
HEADS = {"x": SEQUENCE, "wq": COLUMNS, "wk": COLUMNS, "wv": COLUMNS, "wo": P("model", None)}
CASES = {
    "FSDP": (mlp, {"x": ROWS, "w1": ROWS, "w2": ROWS, "out": ROWS}, 425_984),
    "tensor parallel, result by rows": (mlp, {"x": P("data", None), **TENSOR, "out": ROWS}, 98_304),
    "tensor parallel, x and result by rows": (mlp, {"x": ROWS, **TENSOR, "out": ROWS}, 196_608),
    "attention, sequence split in and out": (pinned_attention, {**HEADS, "attended": SEQUENCE}, 196_608),
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
    from tests.oracles.layout_integer_program import least_bytes

    build, layouts, least = CASES[case]
    graph = build()
    axes = {name: mesh_split(graph.shapes[name], GRID, given).tensor_map for name, given in layouts.items()}
    assert least_bytes(graph, axes) == least


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(40))
def test_random_pins_on_random_networks_cost_what_an_integer_program_finds(seed: int) -> None:
    from tests.oracles.layout_integer_program import least_bytes

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


REFUSED_PINS = [
    ({"w3": ROWS}, "a layout names a tensor 'w3' that is not in the graph; there are x, w1, w2"),
    ({"x": "data"}, "the layout of 'x' must be a layout, such as mesh_split returns; got 'data'; P("),
    ({"x": P("rows")}, "the layout of 'x': the device matrix 2x4 has no axis 'rows'"),
    ({"x": P(None, None, "data")}, "the layout of 'x' has 3 entries, the tensor of shape (128, 64) has 2 dimensions"),
    ({"x": P("data", "data")}, "an axis can split only one dimension, once"),
    ({"x": mesh_split((64, 64), GRID, (-1, -1))}, "'x' has shape (128, 64); its layout is for (64, 64)"),
    ({"out": TensorLayout((128, 64), GRID, ((), ()), (0,))}, "is a partial sum; give the layout of the completed sum"),
    ([ROWS], "layouts are a dictionary of layouts by tensor name"),
]


@pytest.mark.parametrize(("layouts", "sentence"), REFUSED_PINS)
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


# === What MindSpore's Sharding Propagation chose ===


NETWORKS = data()["networks"]
OF_ONE_SHAPE = [network for network in NETWORKS if mindspore.DRAWS[network["seed"]].shape]
MIXED = [network for network in NETWORKS if not mindspore.DRAWS[network["seed"]].shape]


def test_the_file_has_the_networks_that_its_program_draws():
    for seed in mindspore.DRAWS:
        asked = [
            {name: part for name, part in network.items() if name not in ("seed", *SETTINGS)}
            for network in NETWORKS
            if network["seed"] == seed
        ]
        assert asked == mindspore.drawn(seed)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("setting", SETTINGS)
def test_it_chooses_what_mindspore_chose(setting):
    """In every eighth network whose tensors have one shape; all of them are compared below."""
    found = agreement(setting, OF_ONE_SHAPE[::8])
    assert (found.operators, found.networks) == (found.of_operators, found.of_networks)


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_it_chooses_what_mindspore_chose_in_all_networks(setting):
    found = agreement(setting, OF_ONE_SHAPE)
    assert (found.operators, found.networks) == (found.of_operators, found.of_networks)
    found = agreement(setting, MIXED)
    assert found.operators >= 0.94 * found.of_operators, found


@pytest.mark.slow
def test_what_mindspore_remembers_explains_the_rest():
    """Both settings in one process, in this order, as it was asked."""
    with remembering_costs():
        for setting in SETTINGS:
            found = agreement(setting, MIXED)
            assert found.operators >= found.of_operators - 2, found


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_its_plans_compute_the_program(setting):
    for network in random.Random(61).sample(NETWORKS, 2):
        graph = graph_of(network)
        plan = propagate(graph, full=SETTINGS[setting])
        assert_same_program(plan)
        for name, decision in plan.decisions.items():
            if decision.reached:
                options = compared(graph, name, decision.reached, decision.full)
                assert min(options, key=lambda each: each.rank).choice == plan.operators[name]


@pytest.mark.slow
def test_moves_between_layouts_beside_mindspore():
    """Ours move what was counted, and never more than the sequence of MindSpore's operators."""
    for pair in pairs()[:100]:
        source, target = layouts(pair)
        move = redistribute(source, target, 1)
        pieces = cut(np.arange(prod(source.shape)).reshape(source.shape), source)
        assert (join(move.run(pieces), target).ravel() == np.arange(prod(source.shape))).all()
        assert pair["plain"] is not None
        assert move.bytes <= least_of_mindspore(pair)


@pytest.mark.slow
def test_the_table_of_all_moves_is_measured():
    text = (ROOT / "docs" / "layout.md").read_text(encoding="utf-8")
    table = {name: int(number) for name, number in re.findall(r"^\| (more|the same|fewer) \| (\d+) \|$", text, re.M)}
    assert table == {"more": 0, "the same": 0, "fewer": 0} | beside_ours()


@pytest.mark.slow
def test_the_page_is_what_is_measured():
    assert mindspore_page.FILE.read_text(encoding="utf-8") == mindspore_page.page(), "out of date: make docs"
