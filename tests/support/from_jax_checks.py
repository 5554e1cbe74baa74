"""Functions of JAX as graphs: their numbers, on one device and distributed, and what is refused.

`tests/layout/test_graph.py` has pytest run these tests in a process of its own: JAX starts threads, and a process
with threads should not be forked, as other tests do.
"""

from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from lib.layout import LayoutError, P, from_jax, mesh, plan, propagate, training
from lib.layout.choices import BYTES, Choices
from lib.layout.integer_program import IntegerProgram
from lib.layout.notation import graph_from_data, graph_to_data
from tests.oracles.layout_integer_program import least_bytes
from tests.support.layout_strategies import assert_same_program

GRID = mesh(data=2, model=2)


jnp, nn, lax = jax.numpy, jax.nn, jax.lax

D, HEADS = 16, 4
INTS = np.dtype(np.int32)


def dense(x, w1, b1, w2, b2):
    return nn.relu(x @ w1 + b1) @ w2 + b2


def norm(x, scale, shift):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + shift


def attention(p, x):
    batch, length, _ = x.shape
    q, k, v = (
        (x @ p[name]).reshape(batch, length, HEADS, D // HEADS).transpose(0, 2, 1, 3) for name in ("wq", "wk", "wv")
    )
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / jnp.sqrt(D // HEADS)
    scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    mixed = (nn.softmax(scores, axis=-1) @ v).transpose(0, 2, 1, 3)
    return mixed.reshape(batch, length, D) @ p["wo"]


def swiglu(x, gate, up, down):
    return (nn.silu(x @ gate) * (x @ up)) @ down


def layer(p, x):
    with jax.named_scope("attention"):
        x = x + attention(p, norm(x, p["g1"], p["b1"]))
    with jax.named_scope("mlp"):
        return x + nn.gelu(norm(x, p["g2"], p["b2"]) @ p["up"]) @ p["down"]


def rotary(x, cosines, sines):
    first, second = jnp.split(x, 2, axis=-1)
    return x * cosines + jnp.concatenate([-second, first], axis=-1) * sines


def model(table, rows, w):
    return table[rows] @ w + jnp.take(table, rows, axis=0) @ w


ATTENTION = dict.fromkeys(("wq", "wk", "wv", "wo"), (D, D))
LAYER = ATTENTION | {"g1": (D,), "b1": (D,), "g2": (D,), "b2": (D,), "up": (D, 4 * D), "down": (4 * D, D)}

NETWORKS = {
    "mlp": (dense, ((8, D), (D, 32), (32,), (32, D), (D,))),
    "attention": (attention, (ATTENTION, (4, 8, D))),
    "swiglu": (swiglu, ((8, D), (D, 32), (D, 32), (32, D))),
    "layer norm": (norm, ((4, 8, D), (D,), (D,))),
    "transformer layer": (layer, (LAYER, (4, 8, D))),
    "rotary": (rotary, ((4, 8, D), (8, D), (8, D))),
    "embedding": (model, ((32, D), jax.ShapeDtypeStruct((4, 8), INTS), (D, 8))),
}

X = (4, 8)
LABELS = jax.ShapeDtypeStruct((4, 8), INTS)


def cross_entropy(logits, labels):
    return -jnp.take_along_axis(nn.log_softmax(logits), labels[..., None], axis=-1).mean()


SMALL = {
    "sums": (lambda x, y: (x.sum(), x.sum(0), jnp.mean(y, (0, 1)), y.sum(1, keepdims=True)), (X, X)),
    "maxima": (lambda x: (x.max(), jnp.maximum(x, x.max(1, keepdims=True) / 2), jnp.minimum(x, 0.5)), (X,)),
    "powers": (lambda x: (x**2, x**3, x**-2, jnp.abs(x) ** 0.5, (x * x + 1) ** -0.5, x**7), (X,)),
    "functions": (
        lambda x: (jnp.sin(x) + jnp.cos(x), jnp.tanh(x), jnp.log(jnp.exp(x)), nn.sigmoid(x), jnp.sqrt(jnp.abs(x)),
                   nn.gelu(x, approximate=False), nn.relu(x), jnp.clip(x, -0.5, 0.25), lax.erf(x)),
        (X,),
    ),
    "scalar on the left": (
        lambda x: (2 - x, 1 / (x * x + 1), 3 * x, 1 + x, jnp.maximum(0, x), jnp.where(x > 0, 1.0, x)), (X,),
    ),
    "broadcasts": (
        lambda x, row, column: (
            row - x, column / (x * x + 1), row[None] * column, jnp.broadcast_to(row, (3, 4, 8)) + x, column[:, 0] * 2,
            jnp.where(row > 0, x, column), jnp.where(x < column, row, x), jnp.where(row < x, x, 0.0),
            jnp.where(column >= x, x, 1.0), jnp.broadcast_to(row, (2, 2, 8)), (row > 0) & (x > 0) | ~(x > column),
        ),
        (X, (8,), (4, 1)),
    ),
    "comparisons": (lambda x, y: [jnp.where(c, x, y) for c in (x < y, x <= y, x > y, x >= y, x == y, x != y)], (X, X)),
    "shapes": (
        lambda x: (x.reshape(2, 2, 8), x.reshape(8, 4), x.T, x[:, None, :], x[1:3, 2:8], jnp.squeeze(x[:, :1], 1),
                   jnp.pad(x, ((1, 0), (0, 2))), jnp.concatenate([x, 2 * x], 1), jnp.stack([x, x], 1),
                   jnp.split(x, 4, 1), jnp.concatenate([x, jnp.zeros((len(x), 0))], 1)),
        (X,),
    ),
    "products": (
        lambda x, y, z: (x @ y.T, x.T @ y, jnp.dot(x[0], y.T), jnp.einsum("ij,kj,lk->il", x, y, z),
                         jnp.outer(x[0], y[0]), jnp.tensordot(x, jnp.stack([z.T, z.T]), ((0,), (1,))),
                         jnp.einsum("ij,ij->i", x, y)),
        (X, X, (5, 4)),
    ),
    "log softmax": (lambda x: (nn.log_softmax(x, axis=1), nn.softmax(x, axis=0)), (X,)),
    "inner functions": (lambda x: (jax.jit(jnp.sin)(x), jax.checkpoint(jnp.cos)(x), nn.relu6(x)), (X,)),
    "constants": (lambda x: x @ np.eye(8, dtype=np.float32) * np.arange(8, dtype=np.float32) + jnp.ones(X), (X,)),
    "row numbers": (
        lambda table, rows: table[jnp.where(rows < 3, rows + 5, rows)], ((32, 4), jax.ShapeDtypeStruct((4, 8), INTS)),
    ),
    "cross entropy": (cross_entropy, ((4, 8, 32), LABELS)),
    "gradient of cross entropy": (jax.grad(cross_entropy), ((4, 8, 32), LABELS)),
    "gradient of an embedding": (jax.grad(lambda table, rows: (table[rows] ** 2).sum()), ((32, 4), LABELS)),
    "rows of any dimension": (
        lambda x, y: (y[:, x[:, 0]], y[:, 2], y.T[x], jnp.zeros((3, 32)).at[:, x[0]].add(y[:3, :8])),
        (LABELS, (4, 32)),
    ),
    "sums of exponentials": (lambda x: (nn.logsumexp(x, axis=1), jnp.log1p(x * x), jnp.expm1(x)), (X,)),
    "a scan": (
        lambda w, x: lax.scan(lambda h, each: (jnp.tanh(h @ each["w"]) + each["b"], h.sum(1)), x, w),
        ({"w": (3, 8, 8), "b": (3, 8)}, X),
    ),
    "a loop": (lambda x: lax.fori_loop(0, 3, lambda i, y: y + x, x), (X,)),
    "backwards": (lambda x: lax.scan(lambda h, row: (h * row, h), jnp.ones(8), x, reverse=True)[1], (X,)),
    "dynamic slices": (lambda x: lax.dynamic_slice(x, (1, 5), (2, 4)), (X,)),
    "the largest": (lambda x: lax.top_k(x, 3), (X,)),
    "each mapped": (jax.vmap(lambda x, rows: cross_entropy(x, rows)), ((4, 8, 32), LABELS)),
    "arguments again": (lambda x, y: (x, x + y, x), (X, X)),
}  # fmt: skip


def arguments(shapes, seed=0):
    rng = np.random.default_rng(seed)

    def array(shape):
        if hasattr(shape, "dtype"):
            return rng.integers(0, 32, shape.shape, dtype=np.int32)
        return rng.standard_normal(shape).astype(np.float32) / 2

    return jax.tree_util.tree_map(
        array, shapes, is_leaf=lambda x: isinstance(x, tuple) and all(isinstance(n, int) for n in x)
    )


QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""Options of the compiler: what is computed once takes less time than to compile it."""


def expected(function, given):
    return all_expected([(function, given)])[0]


def all_expected(calls):
    """What JAX computes for each function and its arguments, compiled as one program."""
    functions, given = zip(*calls)

    def every(arguments):
        return [function(*mine) for function, mine in zip(functions, arguments)]

    made = jax.jit(every, compiler_options=QUICK)(given)
    return [[np.asarray(each) for each in jax.tree_util.tree_leaves(one)] for one in made]


def assert_close(found, wanted):
    for one, two in zip(found, wanted, strict=True):
        assert one.shape == two.shape
        np.testing.assert_allclose(one, two, rtol=3e-5, atol=3e-6)


@pytest.mark.parametrize("name", [*NETWORKS, *SMALL])
def test_a_graph_computes_what_jax_does(name):
    function, shapes = {**NETWORKS, **SMALL}[name]
    graph = from_jax(function, *shapes, mesh=GRID)
    given = arguments(shapes)
    done = graph.run(graph.values(*given))
    assert_close([done[result] for result in graph.results], expected(function, given))
    used = {tensor for op in graph.operators.values() for tensor in op.inputs} | set(graph.results)
    assert set(graph.operators) <= used, "what no result needs is removed"
    again = graph_from_data(graph_to_data(graph))
    assert again.operators == graph.operators


@pytest.mark.parametrize("name", NETWORKS)
def test_its_plan_runs_on_the_engine_with_the_same_numbers(name):
    function, shapes = NETWORKS[name]
    graph = from_jax(function, *shapes, mesh=GRID)
    given = arguments(shapes, 1)
    kinds = ("matmul", "subtract", "multiply", "gather")
    first = next(op for op in graph.operators.values() if op.kind in kinds)
    letter = first.output_letters[0]  # split in two, in every input that has it
    graph.shard(first.name, [[2 if mine == letter else 1 for mine in row] for row in first.input_letters])
    found = propagate(graph)
    done = found.on_engine(graph.values(*given))
    assert_close([done.value(result) for result in graph.results], expected(function, given))
    assert done.sent == tuple(found.sent)


def test_operators_are_those_that_a_person_would_write():
    def kinds(function, *shapes):
        return [op.kind for op in from_jax(function, *shapes, devices=2).operators.values()]

    assert kinds(dense, *NETWORKS["mlp"][1]) == ["matmul", "add", "relu", "matmul", "add"]
    assert kinds(swiglu, *NETWORKS["swiglu"][1]) == ["matmul", "silu", "matmul", "multiply", "matmul"]
    assert kinds(lambda x: nn.softmax(x, -1), X) == ["softmax"]
    assert kinds(lambda x: x.mean(0), X) == ["reduce_mean"]
    assert kinds(model, *NETWORKS["embedding"][1]) == ["gather", "matmul", "add"]
    assert kinds(lambda x: (x * 1 + 0) / 1, X) == ["reshape"], "only the result is an operator of its own"
    assert kinds(lambda x: (jnp.sin(x) * 2, jnp.sin(x) * 3), X) == ["sin", "multiply", "multiply"]
    wrong = kinds(lambda x: jnp.exp(x - x.max(1, keepdims=True)) / jnp.exp(x - x.max(1, keepdims=True)).sum(0), X)
    assert "softmax" not in wrong, "the axes differ"
    square = kinds(lambda x: jnp.exp(x - x.max(0)[:, None]) / jnp.exp(x - x.max(0)[:, None]).sum(0), (8, 8))
    assert "softmax" not in square, "the maximum is along another axis"

    def across(x):
        raised = jnp.exp(x - x.max(0)[:, None])
        return raised / raised.sum(1, keepdims=True)

    assert "softmax" not in kinds(across, (8, 8)), "and lies along the axis of the sum"


def test_names_roles_and_constants():
    graph = from_jax(layer, LAYER, (4, 8, D), mesh=GRID)
    assert graph.sources["p.wq"] == "parameter"
    assert graph.sources["x"] == "input"
    assert {"attention.softmax1", "mlp.tanh1", "attention.matmul1"} <= set(graph.operators)
    assert graph.results == ("result",)
    assert list(graph.operators)[-1] == "result"
    assert sorted(array.shape for array in graph.constants.values())[-1] == (8, 8), "the mask, once for all heads"
    assert {graph.sources[name] for name in graph.constants} == {"input"}
    named = from_jax(dense, *NETWORKS["mlp"][1], devices=2, parameters=("w1", "b1", "w2", "b2"))
    assert named.sources == {"x": "input", **dict.fromkeys(("w1", "b1", "w2", "b2"), "parameter")}
    listed = from_jax(lambda layers, x: x @ layers[0]["w"] @ layers[1]["w"], [{"w": (8, 8)}] * 2, X, devices=2)
    assert list(listed.sources) == ["layers.0.w", "layers.1.w", "x"]
    half = from_jax(lambda x: x + x, jax.ShapeDtypeStruct(X, jnp.bfloat16), devices=2)
    assert half.itemsize == 2
    mixed = from_jax(lambda x, y: x + y, X, jax.ShapeDtypeStruct(X, jnp.bfloat16), devices=2)
    assert mixed.itemsize == 4, "all count as the largest"
    assert from_jax(lambda *xs: xs[0] + xs[1], X, X, devices=2).arguments == ("argument0", "argument1")


def test_constants_of_two_bytes_are_known_like_others():
    """Numpy has no kind of number for bfloat16, and -1e9 is too much for what a graph of two bytes has in its place."""

    def turned(x):
        first, second = x[..., :4], jnp.where(x[..., 4:] > 0, x[..., 4:], jnp.bfloat16(-1e9))
        return jnp.concatenate([-second, first], -1)

    half = jax.ShapeDtypeStruct(X, jnp.bfloat16)
    slopes = from_jax(jax.grad(lambda x: turned(x).sum()), half, devices=2)
    assert {"pad", "select"} <= {op.kind for op in slopes.operators.values()}
    mean = from_jax(lambda x: x.mean(-1), half, devices=2)
    assert [op.kind for op in mean.operators.values()] == ["reduce_mean"]


def test_the_axis_of_a_softmax_may_be_split_where_it_is_not_one_operator():
    """A maximum and a sum of each row are completed, instead of two moves of all odds."""

    def odds(x, w):
        return jax.nn.softmax(x @ w)

    ends = {"x": P("data"), "w": P(None, "model"), "result": P("data", "model")}
    shapes = (64, 32), (32, 128)
    one, four = (from_jax(odds, *shapes, mesh=mesh(data=2, model=4), fused=fused) for fused in (True, False))
    assert [op.kind for op in one.operators.values()] == ["matmul", "softmax"]
    assert plan(one, layouts=ends).bytes == 2 * 64 * 128 * 4 * 3 // 4, "two all-to-alls"
    found = plan(four, layouts=ends)
    assert found.bytes == 2 * 2 * 3 * 64 * 4, "two all-reduces of a number for each row"
    given = arguments(shapes, 2)
    values = {name: np.asarray(array, np.float32) for name, array in zip(four.arguments, given)} | four.constants
    np.testing.assert_allclose(found.values(values)["result"], odds(*given), rtol=1e-4)


def test_an_imported_layer_is_trained():
    graph = from_jax(layer, LAYER, (4, 8, D), mesh=GRID)
    step = training(graph, "sgd")
    given = arguments((LAYER, (4, 8, D)), 2)
    target = np.zeros((4, 8, D), np.float32)

    def loss(p, x):
        return 0.5 * (layer(p, x) ** 2).sum()

    wanted = jax.jit(jax.grad(loss))(*given)
    done = step.run({**graph.values(*given), "result.target": target})
    for name, gradient in wanted.items():
        found = done[step.step.gradients[f"p.{name}"]]
        np.testing.assert_allclose(found, gradient, rtol=1e-3, atol=1e-4, err_msg=name)


def test_a_plan_of_an_imported_network_is_that_of_the_one_written_by_hand():
    from lib.layout.examples import feed_forward

    shapes = ((64, 64), (64, 64), (64,), (64, 64), (64,))
    graph = from_jax(dense, *shapes, devices=8, parameters=("w1", "b1", "w2", "b2"))
    mine = feed_forward()
    for one, name in ((graph, "matmul1"), (mine, "matmul1")):
        one.shard(name, ((2, 1), (1, 4)))
    assert (propagate(graph).bytes, plan(graph).bytes) == (propagate(mine).bytes, plan(mine).bytes) == (98304, 12288)


KEY = jax.ShapeDtypeStruct((), jax.random.key(0).dtype)
NUMBER = jax.ShapeDtypeStruct((), INTS)
NUMBERS = jax.ShapeDtypeStruct((2,), INTS)

OPAQUE = {
    "sort": (lambda x: jnp.sort(x), (X,), [8]),
    "the order of columns": (lambda x: jnp.argsort(x, 0), (X,), [4]),
    "argmax": (lambda x: x.argmax(1), (X,), []),
    "cumulative sums": (lambda x: jnp.cumsum(x, 0), (X,), [4]),
    "a loop until": (lambda x: lax.while_loop(lambda y: y.sum() < 9, jnp.exp, x), (X,), [4, 8]),
    "a branch": (lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x), (X,), [4, 8]),
    "a computed place": (lambda x, i: lax.dynamic_slice(x, (i, 0), (2, 8)), (X, NUMBER), [2]),
    "a cache": (lambda x, y, i: lax.dynamic_update_slice(x, y, (i, 0)), (X, (1, 8), NUMBER), [4]),
    "sums of rows": (lambda x, i: jnp.asarray(x).at[i].add(1), (X, NUMBERS), [4, 8]),
    "strides": (lambda x: x[::2], (X,), [2]),
    "odd powers": (lambda x, y: (jnp.abs(x) ** 2.3, jnp.abs(x) ** y), (X, X), []),
    "padding": (lambda x: jnp.pad(x, 1, constant_values=3), (X,), [6, 10]),
    "elements": (lambda x, i: jnp.asarray(x)[i, i], (X, NUMBERS), []),
    "sums of elements": (lambda x, i: jnp.zeros(X).at[i, i].add(x[0, :2]), (X, NUMBERS), [4, 8]),
    "no gradients": (lambda x: lax.stop_gradient(x * 2), (X,), []),
    "truncation": (lambda x: (x * 9).astype(int), (X,), []),
    "quotients of numbers": (lambda i: i // 3 + i % 5, (LABELS,), []),
    "bits": (lambda i: (i & 3) | ~i, (LABELS,), []),
    "random numbers": (lambda x: x + jax.random.normal(jax.random.key(0), x.shape), ((512, 256),), []),
    "dropout": (lambda k, x: jnp.where(jax.random.bernoulli(k, 0.5, X), x, 0), (KEY, X), []),
    "keys": (lambda k: jax.random.uniform(jax.random.split(k)[1], X), (KEY,), []),
}
"""By name: a function, shapes, and the sizes of dimensions of its last opaque operator that cannot be split."""


@pytest.mark.parametrize("name", OPAQUE)
def test_what_has_no_operator_is_opaque_and_split_where_its_batching_rule_proves_it(name):
    function, shapes, whole = OPAQUE[name]
    graph = from_jax(function, *shapes, mesh=GRID)
    given = [jax.random.key(3) if shape is KEY else array for shape, array in zip(shapes, arguments(shapes))]
    values = graph.values(*given)
    wanted = expected(function, given)
    opaque = [op for op in graph.operators.values() if op.kind == "opaque"]
    last = zip(opaque[-1].output_shape, opaque[-1].output_letters)
    assert [n for n, letter in last if letter not in opaque[-1].free] == whole
    for op in opaque:  # each dimension that may be split is split in two
        for letter in sorted(op.free):
            if op.divides(letter, 2):
                graph.strategies.clear()
                graph.shard(op.name, [[2 if mine == letter else 1 for mine in row] for row in op.input_letters])
                done = propagate(graph).values(values)
                assert_close([done[result] for result in graph.results], wanted)
    done = graph.run(values)
    assert_close([done[result] for result in graph.results], wanted)


def test_an_opaque_operator_has_no_gradient_and_no_text():
    graph = from_jax(lambda x, w: jnp.sort(x @ w), X, (8, 8), devices=2, parameters=("w",))
    with pytest.raises(LayoutError, match="opaque has no gradient"):
        training(graph, "sgd")
    with pytest.raises(LayoutError, match="computed by jax, and"):
        graph_to_data(graph)


class State(NamedTuple):
    count: Any
    mu: Any


@jax.tree_util.register_dataclass
@dataclass
class Linear:
    weight: Any
    bias: Any


def test_arguments_are_any_pytree():
    """As states of optimizers, which are named tuples, some of them empty, and modules, which are dataclasses."""
    shapes = Linear((8, 8), (8,)), (State(NUMBER, {"w": (8, 8)}), EmptyState()), X

    def step(layer, state, x):
        return x @ layer.weight + layer.bias, x @ state[0].mu["w"]

    graph = from_jax(step, *shapes, devices=2)
    names = ["layer.weight", "layer.bias", "state.0.count", "state.0.mu.w", "x"]
    assert list(graph.sources) == list(graph.arguments) == names
    assert {graph.sources[name] for name in names[:4]} == {"parameter"}
    with pytest.raises(LayoutError, match=r"1, 0.count: .*; got 3"):
        from_jax(step, shapes[0], (State(3, {"w": (8, 8)}), EmptyState()), X, devices=2)


class EmptyState(NamedTuple):
    pass


def test_a_mask_of_many_tokens_is_compared_where_it_is_needed():
    """Rows and columns are constants, their comparison is an operator: nothing of length x length is computed here."""
    length = 1 << 14
    graph = from_jax(
        lambda s: jnp.where(jnp.tril(jnp.ones((length, length), bool)), s, -1e9), (length, length), mesh=GRID
    )
    assert sum(array.size for array in graph.constants.values()) < 3 * length
    assert {"compare", "select"} <= {op.kind for op in graph.operators.values()}


REFUSED = {
    "complex": (
        lambda x: x * 1j,
        [X],
        ["jax's 'convert_element_type' makes complex64", "real numbers only", "the imag"],
    ),
    "chosen": (lambda x: jnp.where(x > 0, 1j, 2j).real, [X], ["jax's 'broadcast_in_dim' makes complex64"]),
    "fft": (lambda x: jnp.fft.fft(x).real, [X], ["jax's 'convert_element_type' makes complex64"]),
    "token": (lambda x: lax.create_token(x), [X], ["jax's 'create_token' makes Tok"]),
    "misfit": (lambda x, y: x @ y, [X, X], ["jax cannot trace <lambda> with these shapes", "dot_general"]),
    "a number": (jnp.sin, [4], ["argument 0: a shape is a tuple of positive whole numbers", "got 4"]),
    "in a list": (lambda x: x[0], [[(4, 0)]], ["argument 0, 0: a shape is a tuple"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_named_with_what_to_do(name):
    function, shapes, sentences = REFUSED[name]
    with pytest.raises(LayoutError) as refusal:
        from_jax(function, *shapes, devices=2)
    for sentence in sentences:
        assert sentence in str(refusal.value)
    if "jax's" in sentences[0]:
        assert "from_jax_checks.py:" in str(refusal.value), "the line is named"


def test_collectives_are_refused():
    many = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("i")
    mapped = jax.shard_map(lambda x: lax.psum(x, "i"), mesh=many, in_specs=spec, out_specs=jax.sharding.PartitionSpec())
    with pytest.raises(LayoutError, match="'shard_map' is of many"):
        from_jax(mapped, X, devices=2)


def test_a_layer_of_a_large_model_is_imported_in_seconds():
    length, width, groups, each = 4096, 4096, 8, 128

    def block(p, x, cosines, sines):
        def heads(w):
            return (x @ w).reshape(1, length, -1, each)

        q, k, v = rotary(heads(p["wq"]), cosines, sines), rotary(heads(p["wk"]), cosines, sines), heads(p["wv"])
        q = q.reshape(1, length, groups, -1, each)
        scores = jnp.einsum("blgqe,bmge->bgqlm", q, k) / each**0.5
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
        mixed = jnp.einsum("bgqlm,bmge->blgqe", nn.softmax(scores), v).reshape(1, length, width)
        return x + mixed @ p["wo"]

    weights = {"wq": (width, width), "wk": (width, 1024), "wv": (width, 1024), "wo": (width, width)}
    start = perf_counter()
    graph = from_jax(block, weights, (1, length, width), (length, 1, each), (length, 1, each), mesh=GRID)
    assert graph.shapes["result"] == (1, length, width)
    assert perf_counter() - start < 20


def scanned(steps, width=8, hidden=16):
    def stack(p, x):
        return lax.scan(lambda h, w: (h + nn.relu(h @ w["up"]) @ w["down"], h.sum(1)), x, p)

    return from_jax(
        stack, {"up": (steps, width, hidden), "down": (steps, hidden, width)}, (8, width), mesh=mesh(data=2, model=2)
    )


def test_a_scan_is_planned_once_and_its_layouts_hold_for_every_step():
    three, many = scanned(3), scanned(24)
    caps = [dict.fromkeys(("p.up", "p.down"), 8 * 16 * steps) for steps in (3, 24)]  # in four parts
    few, more = plan(three, tensor_caps=caps[0]), plan(many, tensor_caps=caps[1])
    assert few.bytes > 0
    moves = sum(edge.bytes for edge in few.edges if edge.operator.startswith("step1."))
    each = moves + sum(few.collective_bytes(name) for name in few.operators if name.startswith("step1."))
    assert more.bytes - few.bytes == 21 * each > 0
    for found in (few, more):
        for name, first in found.graph.repeats.items():
            assert found.operators[name].operator is found.graph.operators[name]
            assert found.layout(name) == found.layout(first)
            assert found.operators[name].inputs == found.operators[first].inputs
    assert_same_program(few)
    sizes = {len(IntegerProgram(Choices(graph, {}, True), BYTES).program.costs) for graph in (three, many)}
    assert max(sizes) < 1.5 * min(sizes), "hardly more variables for 24 steps than for 3"


def test_no_layouts_of_a_scan_move_less():
    graph = scanned(3)
    for pins in ({}, {"p.up": ((), (), (0, 1))}, {"p.up": ((), (0,), (1,)), "p.down": ((), (1,), (0,))}):
        given = {
            name: P(*(tuple("data model".split()[a] for a in axes) for axes in split)) for name, split in pins.items()
        }
        assert plan(graph, layouts=given).bytes == round(least_bytes(graph, pins))


def test_what_is_configured_in_one_step_of_a_scan_is_configured_in_all():
    graph = scanned(3)
    name = next(name for name, op in graph.operators.items() if op.kind == "relu" and name in graph.repeats)
    graph.shard(name, ((2, 2),))
    graph.pin(name, P("data", "model"))
    assert len(graph.strategies) == len(graph.pins) == 3
    assert plan(graph).bytes >= plan(scanned(3)).bytes


def test_other_refusals():
    with pytest.raises(LayoutError, match="'w3'; it has x,"):
        from_jax(dense, *NETWORKS["mlp"][1], devices=2, parameters=("w3",))
    with pytest.raises(LayoutError, match="number of devices or"):
        from_jax(jnp.sin, X)
    with pytest.raises(LayoutError, match="2 arrays, x, y;"):
        from_jax(lambda x, y: x + y, X, X, devices=2).values(np.ones(X))
