"""Operators of a graph, alone and distributed: the same numbers, their collectives, and what is refused."""

import math
import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.layout import DeviceMatrix, Graph, GraphPlan, LayoutError, candidates, distribute, mesh, plan
from lib.layout.propagation import storage_layouts
from tests.support.examples import examples
from tests.support.layout_examples import layer_norm, mixture_of_experts, rotary, swiglu
from tests.support.layout_strategies import assert_same_program
from tests.support.refusals import Refused


def one(
    kind: str,
    devices: int = 4,
    grid: DeviceMatrix | None = None,
    sizes: tuple[int, int, int] = (4, 8, 4),
    uneven: bool | None = None,
) -> Graph:
    """A graph with the single operator `op`, on an x of shape (b, n, n); matrices have k columns."""
    graph = Graph(devices=None if grid else devices, mesh=grid, uneven=uneven)
    b, n, k = sizes
    graph.input("x", (b, n, n))
    graph.parameter("w", (n, k))
    graph.parameter("many", (b, n, k))
    graph.parameter("bias", (n,))
    graph.parameter("column", (n, 1))
    graph.parameter("table", (n, k))
    graph.input("tokens", (b, n))
    build = {
        "matmul": lambda: graph.matmul("op", "x", "w"),
        "matmul, a transposed": lambda: graph.matmul("op", "x", "many", transpose_a=True),
        "matmul, b transposed": lambda: graph.matmul("op", "many", "w", transpose_b=True),
        "matmul, batched": lambda: graph.matmul("op", "x", "many"),
        "einsum": lambda: graph.einsum("op", "x", "many", spec="bij,bik->kj"),
        "einsum of one": lambda: graph.einsum("op", "x", spec="bij->jb"),
        "add": lambda: graph.add("op", "x", "x"),
        "add a row": lambda: graph.add("op", "x", "bias"),
        "add a column": lambda: graph.add("op", "x", "column"),
        "relu": lambda: graph.relu("op", "x"),
        "gelu": lambda: graph.gelu("op", "x"),
        "softmax": lambda: graph.softmax("op", "x", axis=1),
        "sum": lambda: graph.reduce_sum("op", "x", 0),
        "mean": lambda: graph.reduce_mean("op", "x", -1),
        "transpose": lambda: graph.transpose("op", "x", (2, 0, 1)),
        "merge": lambda: graph.reshape("op", "x", (b * n, n)),
        "cut": lambda: graph.reshape("op", "x", (b, n, n // 2, 2, 1)),
        "gather": lambda: graph.gather("op", "table", "tokens"),
        "scatter": lambda: graph.scatter("op", "x", "tokens", n),
        "subtract": lambda: graph.subtract("op", "x", "bias"),
        "multiply": lambda: graph.multiply("op", "x", "column"),
        "divide": lambda: graph.divide("op", "x", graph.exp("positive", "bias")),
        "silu": lambda: graph.silu("op", "x"),
        "exp": lambda: graph.exp("op", "x"),
        "tanh": lambda: graph.tanh("op", "x"),
        "negative": lambda: graph.negative("op", "x"),
        "rsqrt": lambda: graph.rsqrt("op", graph.exp("positive", "x")),
        "logistic": lambda: graph.logistic("op", "x"),
        "sin": lambda: graph.sin("op", "x"),
        "maximum": lambda: graph.maximum("op", "x", "bias"),
        "compare": lambda: graph.compare("op", "x", "column", "greater_equal"),
        "select": lambda: graph.select("op", "x", "bias", "column"),
        "unit dimensions": lambda: graph.reshape("op", "x", (1, b, 1, n, n)),
        "max": lambda: graph.reduce_max("op", "x", 1),
        "repeat": lambda: graph.repeat("op", "x", 1, k, 0.5),
        "concat": lambda: graph.concat("op", "x", "x", axis=1),
        "slice": lambda: graph.slice("op", "x", 2, 1, n - 1),
        "pad": lambda: graph.pad("op", "x", 0, 1, 3),
        "top k": lambda: graph.top_k("op", "x", 3),
        "route": lambda: graph.route("op", "x", 2),
    }
    build[kind]()
    for name in [name for name in graph.sources if not graph.consumers(name)]:
        del graph.sources[name], graph.shapes[name]
    return graph


KINDS = (
    "matmul|matmul, a transposed|matmul, b transposed|matmul, batched|einsum|einsum of one|add|add a row|add a column|"
    "relu|gelu|softmax|sum|mean|transpose|merge|cut|gather|scatter|subtract|multiply|silu|exp|tanh|negative|max|repeat|"
    "concat|slice|pad|top k|route|logistic|sin|maximum|compare|select|unit dimensions"
).split("|")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", KINDS)
def test_every_strategy_of_an_operator_equals_the_stand_alone_one(kind):
    for graph in (one(kind), one(kind, grid=mesh(a=2, b=2)), one(kind, devices=6)):
        for choice in candidates(graph, graph.operators["op"]):
            assert_same_program(GraphPlan(graph, {"op": choice}, storage_layouts(graph, {"op": choice})))


def strategies(kind: str) -> set[str]:
    graph = one(kind)
    return {str(choice) for choice in candidates(graph, graph.operators["op"])}


def test_a_contracted_dimension_needs_an_all_reduce_or_a_reduce_scatter():
    assert "matmul((4,1,1),(1,1))" in strategies("matmul")
    assert {"matmul((1,1,4),(4,1)) -> all-reduce", "matmul((1,1,4),(4,1)) -> reduce-scatter"} <= strategies("matmul")
    assert "gather((4,1),(1,1)) -> all-reduce" in strategies("gather")
    assert "reduce_sum((4,1,1)) -> all-reduce" in strategies("sum")


def test_what_must_stay_whole_is_never_split():
    assert strategies("softmax") == {"softmax((4,1,1))", "softmax((1,1,4))", "softmax((2,1,2))"}
    assert strategies("merge") == {"reshape((4,1,1))", "reshape((2,1,2))", "reshape((1,1,4))"}
    assert strategies("cut") == {"reshape((1,1,4))", "reshape((1,2,2))", "reshape((1,4,1))",
                                 "reshape((2,1,2))", "reshape((2,2,1))", "reshape((4,1,1))"}  # fmt: skip


def test_dimensions_of_size_one_do_not_keep_others_whole():
    assert "reshape((4,1,1))" in strategies("unit dimensions")
    graph = Graph(4)
    graph.input("x", (8,))
    graph.reshape("row", "x", (1, 8))
    graph.reshape("back", "row", (8,))
    assert [str(choice) for choice in candidates(graph, graph.operators["row"])] == ["reshape((4))"]
    assert [str(choice) for choice in candidates(graph, graph.operators["back"])] == ["reshape((1,4))"]


def test_elementwise_functions_are_those_of_the_textbook():
    graph = Graph(1)
    graph.input("x", (5,))
    graph.input("y", (5,))
    for kind in ("logistic", "reciprocal", "sqrt", "log", "sin", "cos", "erf"):
        graph.operator(kind, kind, "x")
    for relation in ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal"):
        graph.compare(relation, "x", "y", relation)
    graph.maximum("maximum", "x", "y")
    graph.minimum("minimum", "x", "y")
    graph.select("select", "x", "y", "less")
    x, y = np.array([0.25, 0.5, 1.0, 2.0, 3.5]), np.array([1.0, 0.5, 0.5, 3.0, 3.0])
    done = graph.run({"x": x, "y": y})
    for kind, function in {
        "logistic": lambda v: 1 / (1 + math.exp(-v)), "reciprocal": lambda v: 1 / v, "sqrt": math.sqrt, "log": math.log,
        "sin": math.sin, "cos": math.cos, "erf": math.erf,
    }.items():  # fmt: skip
        np.testing.assert_allclose(done[kind], [function(v) for v in x], rtol=1e-12)
    for relation, function in {
        "less": operator.lt, "less_equal": operator.le, "greater": operator.gt, "greater_equal": operator.ge,
        "equal": operator.eq, "not_equal": operator.ne, "maximum": max, "minimum": min,
        "select": lambda a, b: a if a < b else b,
    }.items():  # fmt: skip
        np.testing.assert_array_equal(done[relation], [float(function(a, b)) for a, b in zip(x, y)], relation)
    with Refused("no such relation", relation="les", error=LayoutError):
        graph.compare("wrong", "x", "y", "les")


def test_computation_and_memory_are_those_of_one_device():
    graph = one("matmul")
    whole = 2 * 4 * 8 * 8 * 4
    for choice in candidates(graph, graph.operators["op"]):
        assert choice.flops == whole // 4
    by_rows = next(c for c in candidates(graph, graph.operators["op"]) if c.strategy == ((4, 1, 1), (1, 1)))
    assert [layout.elements for layout in (*by_rows.inputs, by_rows.output)] == [64, 32, 32]


@examples(60)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_any_reshape_gives_the_same_numbers_however_it_is_split(dims, random):
    flat = [f for n in dims for f in ([2, 2] if n == 4 else [n])]
    cuts = sorted(random.sample(range(len(flat) + 1), random.randint(0, len(flat))))
    after = [int(np.prod(flat[a:b])) for a, b in zip([0, *cuts], [*cuts, len(flat)])]
    graph = Graph(4)
    graph.input("x", tuple(dims))
    graph.reshape("op", "x", after)
    for choice in candidates(graph, graph.operators["op"]):
        assert_same_program(GraphPlan(graph, {"op": choice}, storage_layouts(graph, {"op": choice})))


def graph() -> Graph:
    graph = Graph(8)
    graph.input("x", (6, 8))
    graph.parameter("w", (8, 4))
    graph.matmul("matmul", "x", "w")
    return graph


REFUSED = [
    (lambda g: g.operator("mathmul", "a", "x", "w"), "there is no operator 'mathmul'; did you mean 'matmul'?"),
    (lambda g: g.operator("??", "a", "x"), "there is no operator '??'; there are relu, gelu"),
    (lambda g: g.operator(None, "a", "x"), "there is no operator 'None'; there are relu, gelu"),
    (lambda g: g.matmul("a", "x", None), "there is no tensor named 'None'; there are x, w, matmul"),
    (lambda g: g.matmul("a", "x", "v"), "there is no tensor named 'v'; there are x, w, matmul"),
    (lambda g: g.relu("a", "matmull"), "there is no tensor named 'matmull'; did you mean 'matmul'?"),
    (lambda g: g.relu("w", "x"), "already a tensor named 'w'"),
    (lambda g: g.matmul("a", "x", "x"), "a: the shapes (6, 8) and (6, 8) do not fit: 8 columns meet 6 rows"),
    (lambda g: g.matmul("a", "x", g.input("b", (8,))), "a: a matmul takes a (..., m, k) and"),
    (lambda g: g.einsum("a", "x", "w", spec="ij,jk"), "a: an einsum has one letter per dimension"),
    (lambda g: g.einsum("a", "x", "w", spec="i...,jk->ik"), "an einsum has one letter per dimension"),
    (lambda g: g.einsum("a", "x", "w", spec="ij->i"), "a: 'ij->i' is for 1 inputs; got 2"),
    (lambda g: g.einsum("a", "x", spec="ijk->i"), "a: 'ijk' in 'ijk->i' has 3 letters for an input of shape (6, 8)"),
    (lambda g: g.einsum("a", "x", "w", spec="ij,ik->k"), "a: 'i' in 'ij,ik->k' is 6 in one input and 8 in another"),
    (lambda g: g.einsum("a", "x", spec="ij->ii"), "a: 'ii' in 'ij->ii' has 'i' twice; a diagonal cannot be split"),
    (lambda g: g.einsum("a", "x", spec="ij->ik"), "a: 'k' in the output of 'ij->ik'"),
    (lambda g: g.add("a", "x", "w"), "a: the shapes (6, 8) and (8, 4) do not fit"),
    (lambda g: g.softmax("a", "x", axis=2), "a: there is no axis 2 in shape (6, 8)"),
    (lambda g: g.transpose("a", "x", (0, 0)), "a: (0, 0) is not an order of the 2 dimensions of shape (6, 8)"),
    (lambda g: g.reshape("a", "x", (7, 7)), "a: shape (6, 8) has 48 elements, shape (7, 7) has 49"),
    (lambda g: g.gather("a", g.input("t", (8,)), "x"), "two-dimensional table; got (8,)"),
    (lambda g: g.input("a", (0,)), "a tensor is at least 1; got (0,)"),
    (lambda g: g.run(None), "arrays by source name; got NoneType"),
    (lambda g: g.run({"x": None}), "no value was given for input 'x' of shape (6, 8)"),
    (lambda g: g.run({}), "no value was given for input 'x' of shape (6, 8)"),
    (lambda g: g.run({"x": np.zeros(3), "w": 0}), "'x' has shape (6, 8); the given value has (3,)"),
    (lambda g: g.shard(["matmul"], ((1, 1), (1, 1))), "there is no operator named '['matmul']' in this graph;"),
    (lambda g: distribute(g.operators["matmul"], None, 8), "such as ((2, 1), (1, 4)); got None"),
    (lambda g: distribute(g.operators["matmul"], ((1, 1), (1, 1)), "8"), "counted in whole numbers; got '8'"),
    (lambda g: distribute(g.operators["matmul"], ((1, 1), (1, 1)), 0), "1 parts, which does not divide 0 devices"),
    (
        lambda g: g.shard("matmull", ((1, 1), (1, 1))),
        "no operator named 'matmull' in this graph; did you mean 'matmul'?",
    ),
    (lambda g: g.operator("softmax", "s", "x", axs=1), "s: softmax is called as softmax(name, x, axis): got an unexp"),
    (lambda g: g.operator("matmul", "m", "x"), "m: matmul is called as matmul(name, a, b, transpose_a, transpose_b): "),
    (lambda g: g.softmax("s", "x", axis="i"), "s: there is no axis 'i' in shape (6, 8)"),
    (lambda g: g.input("q", 5), "q: a shape is a tuple of whole numbers; got 5"),
    (lambda g: g.shard("matmul", (2, 4)), "matmul: a strategy is a tuple of whole numbers for each input, such as"),
    (lambda g: g.shard("matmul", ((2.5, 1), (1, 1))), "such as ((2, 1), (1, 4)); got ((2.5, 1), (1, 1))"),
    (lambda g: g.shard("matmul", None), "such as ((2, 1), (1, 4)); got None"),
    (lambda g: g.shard("matmul", ((0, 1), (1, 1))), "matmul: dimension 0 of 'x', of size 6, cannot be split into 0"),
    (lambda g: g.shard("matmul", ((3, 1), (1, 1))), "((3,1),(1,1)) makes 3 parts, which does not divide 8 devices"),
    (lambda g: g.shard("matmul", ((2, 2), (2, 4))), "((2,2),(2,4)) makes 16 parts, which does not divide 8 devices"),
    (
        lambda g: g.shard("matmul", ((2, 2), (4, 1))),
        "is split into 4 parts, but dimension 1 of 'x' into 2; both are the same dimension of the operator",
    ),
    (
        lambda g: g.shard("matmul", ((2, 1),)),
        "a strategy has a number for each dimension of each input, (6, 8), (8, 4)",
    ),
    (
        lambda g: g.shard(g.softmax("s", "x"), ((1, 2),)),
        "of size 8, cannot be split in a softmax; the strategy splits it",
    ),
    (
        lambda g: g.shard(g.reshape("r", "x", (3, 16)), ((2, 1),)),
        "cannot be split into 2 parts: the number has to divide (6, 3)",
    ),
]


@pytest.mark.parametrize(("act", "sentence"), REFUSED)
def test_what_does_not_fit_is_refused_in_one_sentence(act, sentence):
    with pytest.raises(LayoutError) as refusal:
        act(graph())
    assert sentence in str(refusal.value)
    assert "\n" not in str(refusal.value)


# === Layers of modern models ===


def numbers(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(graph.shapes[name]) for name in graph.sources}


def test_a_gated_mlp():
    graph = swiglu(devices=4, tokens=8, width=4, hidden=8)
    v = numbers(graph)
    gate = v["x"] @ v["gate"]
    right = (gate / (1 + np.exp(-gate)) * (v["x"] @ v["up"])) @ v["down"]
    assert np.allclose(graph.run(v)["lowered"], right)


def test_layer_normalization():
    graph = layer_norm(devices=4, tokens=8, width=4)
    v = {**numbers(graph), "epsilon": np.array([1e-5])}
    x = v["x"]
    right = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * v["scale"] + v["shift"]
    assert np.allclose(graph.run(v)["shifted"], right)


def test_rotary_embedding_turns_pairs_of_numbers():
    graph = rotary(devices=2, batch=2, length=4, heads=2, each=4)
    v = numbers(graph)
    angles = np.arange(4)[:, None] * np.array([1.0, 0.1])
    v["cosines"], v["sines"] = (np.tile(f(angles), 2)[:, None, :] for f in (np.cos, np.sin))
    got = graph.run(v)
    pairs = got["queries"][..., :2] + 1j * got["queries"][..., 2:]
    turned = pairs * np.exp(1j * angles)[:, None, :]
    assert np.allclose(got["rotated"], np.concatenate([turned.real, turned.imag], axis=-1))


def test_each_token_goes_to_its_best_expert_while_there_is_room():
    graph = mixture_of_experts(devices=1, groups=2, tokens=4, experts=2, width=4, hidden=8)
    v = numbers(graph)
    got = graph.run(v)
    gates, capacity = got["gates"], 4
    right = np.zeros_like(v["x"])
    for group in range(2):
        taken = [0, 0]
        for token in range(4):
            expert = int(gates[group, token].argmax())
            if taken[expert] < capacity:
                hidden = np.maximum(v["x"][group, token] @ v["up"][expert], 0)
                right[group, token] = gates[group, token, expert] * (hidden @ v["down"][expert])
            taken[expert] += 1
    assert np.allclose(got["combined"], right)


def test_a_full_expert_takes_no_more_tokens():
    graph = Graph(1)
    graph.input("gates", (1, 4, 2))
    graph.route("table", "gates", 2)
    gates = np.array([[[3.0, 1], [2, 1], [5, 1], [0, 4]]])
    table = graph.run({"gates": gates})["table"]
    assert table[0, :, 0, :].tolist() == [[3, 0], [0, 2], [0, 0], [0, 0]]
    assert table[0, :, 1, :].tolist() == [[0, 0], [0, 0], [0, 0], [4, 0]]


def test_experts_on_their_own_devices_exchange_tokens_by_all_to_all():
    graph = mixture_of_experts()
    weight = 8 * 16 * 64 * 4
    found = plan(graph, tensor_caps={"up": weight // 8, "down": weight // 8, "x": 16 * 16 * 4, "combined": 16 * 16 * 4})
    assert found.operators["raised"].strategy[1] == (8, 1, 1), "each device has one expert"
    paid = {edge.tensor: found.redistribution(edge).names for edge in found.edges if edge.bytes}
    assert paid == {"sent": ("all-to-all",), "lowered": ("all-to-all",)}
    assert found.bytes == 2 * 7 * 8 * 4 * 16 * 4 * 8 // 8


@pytest.mark.sampled(1)
@pytest.mark.parametrize("build", [swiglu, layer_norm, rotary, mixture_of_experts])
def test_their_exact_plans_equal_one_device(build):
    graph = build()
    found = plan(graph, memory_cap=17_000 if build is layer_norm else plan(graph).memory * 3 // 4)
    values = {name: abs(value) + 1 for name, value in numbers(graph).items()}
    alone, together = graph.run(values), found.values(values)
    assert all(np.allclose(together[name], alone[name]) for name in alone)
    if build is not layer_norm:
        assert_same_program(found)


def test_an_odd_length_is_padded_and_then_split():
    """Seven rows on four devices: pad to eight, compute, and cut off what was added."""
    graph = Graph(mesh=mesh(data=4))
    graph.input("x", (7, 4))
    graph.parameter("w", (4, 4))
    graph.matmul("y", graph.pad("padded", "x", 0, after=1), "w")
    graph.slice("rows", "y", 0, 0, 7)
    graph.shard("y", ((4, 1), (1, 1)))
    found = plan(graph)
    assert found.operators["y"].local.local_shape == (2, 4)
    assert_same_program(found)


REFUSED_OF_MODERN_LAYERS = [
    (lambda g: g.concat("c", "x", "w", axis=0), "the shapes (4, 6), (6, 2) differ in more than axis 0"),
    (lambda g: g.concat("c", axis=0), "a concat takes one tensor or more"),
    (lambda g: g.slice("s", "x", 1, 4, 9), "axis 1 of shape (4, 6) has no part from 4 to 9"),
    (lambda g: g.slice("s", "x", 1, 3, 3), "no part from 3 to 3"),
    (lambda g: g.pad("p", "x", 0, before=-1), "whole number of zeros on each side; got -1 and 0"),
    (lambda g: g.top_k("t", "x", 7), "no 7 largest elements in the last axis of shape (4, 6)"),
    (lambda g: g.top_k("t", "x", True), "k is a whole number; got True"),
    (lambda g: g.route("r", "x", 0), "a capacity 1 or more; got (4, 6), 0"),
    (lambda g: g.scatter("s", "x", "w", 3), "vectors (..., e) and row numbers (...); got (4, 6) and (6, 2)"),
    (lambda g: g.multiply("m", "w", "x"), "the second is broadcast to the first"),
    (lambda g: g.repeat("r", "x", 5, 2), "there is no axis 5 in shape (4, 6, 2)"),
]


@pytest.mark.parametrize(("act", "sentence"), REFUSED_OF_MODERN_LAYERS)
def test_what_does_not_fit_is_refused(act, sentence):
    graph = Graph(2)
    graph.input("x", (4, 6))
    graph.parameter("w", (6, 2))
    with pytest.raises(LayoutError) as refusal:
        act(graph)
    assert sentence in str(refusal.value)
    assert list(graph.operators) == []
