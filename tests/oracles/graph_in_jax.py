"""A graph as a function of JAX in which tensors have the layouts of a plan, as sharding constraints.

Written apart from the graph's own operators on numpy, so that it says what XLA's partitioner makes of the same plan.
"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from lib.layout import GraphPlan, Operator, TensorLayout

COMPARE = {
    "less": jnp.less, "less_equal": jnp.less_equal, "greater": jnp.greater, "greater_equal": jnp.greater_equal,
    "equal": jnp.equal, "not_equal": jnp.not_equal,
}  # fmt: skip
BINARY = {
    "add": jnp.add, "subtract": jnp.subtract, "multiply": jnp.multiply, "divide": jnp.divide, "maximum": jnp.maximum,
}  # fmt: skip
UNARY = {
    "relu": lambda x: jnp.maximum(x, 0), "exp": jnp.exp, "tanh": jnp.tanh, "negative": jnp.negative,
    "silu": jax.nn.silu, "rsqrt": jax.lax.rsqrt, "logistic": jax.nn.sigmoid, "sqrt": jnp.sqrt, "log": jnp.log,
    "reciprocal": lambda x: 1 / x, "sin": jnp.sin, "cos": jnp.cos,
}  # fmt: skip


def compute(op: Operator, arrays: list[Any]) -> Any:
    """The output of an operator in JAX."""
    settings = dict(op.settings)
    x = arrays[0]
    if op.kind in UNARY:
        return UNARY[op.kind](x)
    if op.kind in BINARY:
        return BINARY[op.kind](*arrays)
    match op.kind:
        case "matmul":
            a, b = (jnp.swapaxes(y, -1, -2) if settings[f"transpose_{n}"] else y for n, y in zip("ab", arrays))
            return a @ b
        case "einsum":
            return jnp.einsum(settings["spec"], *arrays)
        case "softmax":
            return jax.nn.softmax(x, axis=settings["axis"])
        case "reduce_mean" | "reduce_sum" | "reduce_max":
            return getattr(jnp, op.kind.removeprefix("reduce_"))(x, axis=settings["axis"])
        case "repeat":
            return jnp.broadcast_to(jnp.expand_dims(x, settings["axis"]), op.output_shape) * settings["scale"]
        case "reshape":
            return x.reshape(op.output_shape)
        case "transpose":
            return x.transpose(settings["order"])
        case "compare":
            return COMPARE[settings["relation"]](x, arrays[1]).astype(x.dtype)
        case "select":
            return jnp.where(arrays[2] != 0, x, arrays[1])
        case "gather":
            return x[arrays[1]]
        case "scatter":
            return jnp.zeros(op.output_shape, x.dtype).at[arrays[1]].add(x)
        case "slice":
            return jax.lax.slice_in_dim(x, settings["start"], settings["stop"], axis=settings["axis"])
        case "pad":
            widths = [(0, 0)] * x.ndim
            widths[settings["axis"]] = settings["before"], settings["after"]
            return jnp.pad(x, widths)
        case "concat":
            return jnp.concatenate(arrays, axis=settings["axis"])
    raise NotImplementedError(op.kind)


def sharding(layout: TensorLayout, grid: Mesh) -> NamedSharding:
    """The same layout in JAX's terms, on the mesh of the same axes."""
    assert not layout.partial
    names = layout.matrix.names
    return NamedSharding(grid, PartitionSpec(*(tuple(names[axis] for axis in axes) for axes in layout.tensor_map)))


def in_jax(plan: GraphPlan, results: tuple[str, ...], every: bool) -> tuple[Callable[..., Any], dict[str, Any]]:
    """A function of the graph's sources by name, and the arguments of `jax.jit` for it.

    Sources and results have their layouts in the plan; with `every`, so have all inputs and outputs of operators. JAX
    has no uneven arguments and results, only constraints in between: an uneven source is whole on every device first.
    """
    matrix = plan.graph.mesh
    assert matrix is not None
    grid = jax.make_mesh(matrix.shape, matrix.names, axis_types=(jax.sharding.AxisType.Auto,) * len(matrix.shape))
    wanted = {(edge.operator, edge.place): edge.target for edge in plan.edges}

    def pinned(array: Any, layout: TensorLayout) -> Any:
        if layout.partial or not every:  # XLA has no annotation for summands
            return array
        return jax.lax.with_sharding_constraint(array, sharding(layout, grid))

    def function(sources: Mapping[str, Any]) -> list[Any]:
        tensors = dict(sources)
        for name, op in plan.graph.operators.items():
            taken = [pinned(tensors[x], wanted[name, place]) for place, x in enumerate(op.inputs)]
            tensors[name] = pinned(compute(op, taken), plan.layout(name))
        return [tensors[name] for name in results]

    whole = NamedSharding(grid, PartitionSpec())
    placed = {name: whole if layout.uneven else sharding(layout, grid) for name, layout in plan.storage_layouts.items()}
    return function, {
        "in_shardings": (placed,),
        "out_shardings": [sharding(plan.layout(name), grid) for name in results],
    }
