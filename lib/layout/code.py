"""A plan as a program of JAX, with specifications for all tensors and a shard_map of its collectives, or as JSON.

A program is text that somebody can read, keep and run without this library. What moves is left to the plan. Only where
a plan exchanges pieces in one step, which JAX cannot, is the cheapest sequence of named collectives written instead.

Rejected: a program with specifications alone. XLA then chooses the collectives, and they are often others than the
plan's. In a shard_map each device computes on its own pieces, and XLA has nothing left to decide. Uneven pieces are
refused, because JAX has none.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lib.errors import Sentences
from lib.layout.exchanges import Step
from lib.layout.graph import DistributedOperator
from lib.layout.layouts import (
    Axes,
    DeviceMatrix,
    LayoutError,
    TensorLayout,
    common_shape,
    nearest_name,
    parts,
    refined,
    respelled,
)
from lib.layout.operators import EPSILON, MOMENTUM, RATE, SLOPE, SQUARES
from lib.layout.plans import GraphPlan
from lib.layout.redistribution import redistribute

# --- A plan as a program of JAX ---

HEAD = '''"""{title}"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh({shape}, {names}, axis_types=(jax.sharding.AxisType.Auto,) * {count})

'''

HELPERS = {
    "rows_of": '''
def rows_of(table, rows, start):
    """Rows of a part of a table, and zeros for rows of other parts."""
    here = (rows >= start) & (rows < start + len(table))
    return jnp.where(here[..., None], table[jnp.where(here, rows - start, 0)], 0)
''',
    "added_rows": '''
def added_rows(values, rows, start, shape):
    """A part of a table whose rows are sums of values, by row number."""
    mine = jnp.where((rows >= start) & (rows < start + shape[0]), rows - start, shape[0])
    return jnp.zeros(shape, values.dtype).at[mine].add(values, mode="drop")
''',
    "routed": '''
def routed(gates, capacity, ones):
    """Each token's gate at its expert and its place in that expert's queue; zeros for a token that finds it full."""
    chosen = jax.nn.one_hot(gates.argmax(-1), gates.shape[-1], dtype=gates.dtype)
    place = (jnp.cumsum(chosen, -2) * chosen).sum(-1).astype(int) - 1
    here = jax.nn.one_hot(place, capacity, dtype=gates.dtype)
    return (chosen if ones else gates * chosen)[..., None] * here[..., None, :]
''',
}
"""By name: functions that the expressions call."""

ELEMENTWISE = {
    **{kind: f"jnp.{kind}({{0}})" for kind in ("exp", "tanh", "negative", "reciprocal", "sqrt", "log", "sin", "cos")},
    **{kind: f"jax.nn.{kind}({{0}})" for kind in ("relu", "silu")},
    **{kind: f"jnp.{kind}({{0}}, {{1}})" for kind in ("add", "subtract", "multiply", "divide", "maximum", "minimum")},
    "gelu": "jax.nn.gelu({0}, approximate=False)",
    "logistic": "jax.nn.sigmoid({0})",
    "rsqrt": "lax.rsqrt({0})",
    "erf": "lax.erf({0})",
    "select": "jnp.where({2} != 0, {0}, {1})",
    "store": "{0}",
    "compare": "jnp.{relation}({0}, {1}).astype({0}.dtype)",
    "softmax": "jax.nn.softmax({0}, axis={axis})",
    "softmax_grad": "{1} * ({0} - ({0} * {1}).sum(axis={axis}, keepdims=True))",
    "einsum": "jnp.einsum({spec!r}, {inputs})",
    "reduce_sum": "{0}.sum(axis={axis})",
    "reduce_mean": "{0}.sum(axis={axis}) / {size}",
    "reduce_max": "{0}.max(axis={axis})",
    "reshape": "{0}.reshape({shape})",
    "transpose": "{0}.transpose({order})",
    "concat": "jnp.concatenate([{inputs}], axis={axis})",
    "slice": "lax.slice_in_dim({0}, {start}, {stop}, axis={axis})",
    "pad": "jnp.pad({0}, [({before}, {after}) if i == {axis} else (0, 0) for i in range({0}.ndim)])",
    "repeat": "jnp.broadcast_to(jnp.expand_dims({0} * {scale}, {axis}), {shape})",
    "top_k": "{0} * jax.nn.one_hot(lax.top_k({0}, {k})[1], {0}.shape[-1], dtype={0}.dtype).sum(-2)",
    "largest": "lax.top_k({0}, {k})[{numbers:d}]",
    "route": "routed({0}, {capacity}, {ones})",
    "gather": "rows_of({0}, {1}, {start})",
    "scatter": "added_rows({0}, {1}, {start}, {shape})",
    "moments": f"jnp.stack([{MOMENTUM} * {{0}}[0] + {1 - MOMENTUM} * {{1}}, "
    f"*({SQUARES} * x + {1 - SQUARES} * {{1}} * {{1}} for x in {{0}}[1:])])",
    "update": f"{{0}} - {RATE} * {{by}}",
}
"""By kind: the expression of an operator, with its inputs by number, its settings, and its piece's shape."""
SLOPES = {
    "relu": "({1} > 0)", "exp": "{1}", "rsqrt": "(-0.5 * {1} ** 3)", "tanh": "(1 - {1} * {1})", "top_k": "({1} != 0)",
    "logistic": "({1} * (1 - {1}))", "reciprocal": "(-{1} * {1})", "sqrt": "(0.5 / {1})",
}  # fmt: skip
"""The derivative of those that need only their output; JAX finds the others."""
ELEMENTWISE |= {f"{kind}_grad": f"{{0}} * {slope}" for kind, slope in SLOPES.items()} | {
    f"{kind}_grad": f"jax.jvp(lambda x: {ELEMENTWISE[kind].format('x')}, ({{1}},), ({{0}},))[1]"
    for kind in SLOPE.keys() - SLOPES.keys()
}


def jax_code(plan: GraphPlan) -> str:
    """The program as text. `SPECS` has the PartitionSpec of every tensor, `program` takes the sources by name and
    returns the results; `in_shardings` and `out_shardings` are for `jax.jit` of `program`. If a move is over
    parts of axes, the program's mesh has an axis for each prime factor.
    """
    mesh = plan.graph.mesh
    if mesh is None:
        raise LayoutError(SAYS("axes without names"))
    if plan.padding:
        name = next(iter(plan.padding))[0]
        raise LayoutError(SAYS("uneven pieces", name=name))
    try:
        return _code(plan, mesh)
    except _PartOfAxisError:
        return _code(plan, refined(TensorLayout((), mesh, ()), mesh).matrix)


class _PartOfAxisError(Exception):
    """A layout that needs a finer mesh."""


def _code(plan: GraphPlan, mesh: DeviceMatrix) -> str:
    number = {name: f"t{i}" for i, name in enumerate(plan.graph.shapes)}
    results = plan.graph.results or tuple(name for name in plan.operators if not plan.graph.consumers(name))
    taken = [plan.redistribution(edge).named_steps for edge in plan.edges if not edge.moved_for]
    taken += [op.reduction for op in plan.operators.values()]
    steps = [step for sequence in taken for step in _named(sequence)]
    moved = sum(step.total for step in steps) * plan.graph.itemsize
    instead = f", where the plan's exchanges take {plan.bytes:,}" if moved != plan.bytes else ""
    title = f"{moved:,} bytes move{instead}."
    body = list(_body(plan, number, mesh))
    lines = [HEAD.format(title=title, shape=mesh.shape, names=mesh.names, count=len(mesh.shape))]
    lines += [f"{text}\n" for name, text in HELPERS.items() if any(f"{name}(" in line for line in body)]
    lines += ["SPECS = {", *(f"    {name!r}: {spec(plan.layout(name), mesh)}," for name in number), "}"]
    lines += [f"SOURCES = {list(plan.graph.sources)!r}", f"RESULTS = {list(results)!r}", "", ""]
    lines.append(f"def on_device({', '.join(number[name] for name in plan.graph.sources)}):")
    lines += (f"    {line}" for line in body)
    lines += [f"    return [{', '.join(number[name] for name in results)}]", "", ""]
    lines += [
        "def program(sources):",
        "    each = jax.shard_map(on_device, mesh=mesh, in_specs=tuple(SPECS[x] for x in SOURCES),",
        "                         out_specs=[SPECS[x] for x in RESULTS], check_vma=False)",
        "    return dict(zip(RESULTS, each(*(sources[x] for x in SOURCES))))",
        "",
        "",
        "in_shardings = ({x: NamedSharding(mesh, SPECS[x]) for x in SOURCES},)",
        "out_shardings = {x: NamedSharding(mesh, SPECS[x]) for x in RESULTS}",
        "step = jax.jit(program, in_shardings=in_shardings, out_shardings=out_shardings)",
    ]
    return "\n".join(lines) + "\n"


def spec(layout: TensorLayout, mesh: DeviceMatrix) -> str:
    """A layout as a PartitionSpec: P("data", None)."""
    entries = [tuple(mesh.names[axis] for axis in axes) for axes in _on(layout, mesh).tensor_map]
    return f"P({', '.join(repr(None if not e else e[0] if len(e) == 1 else e) for e in entries)})"


def _on(layout: TensorLayout, mesh: DeviceMatrix) -> TensorLayout:
    """The same layout by the axes of the program's mesh."""
    if layout.matrix == mesh:
        return layout
    if common_shape([layout.matrix, mesh]) != mesh.shape:
        raise _PartOfAxisError
    return respelled(layout, mesh)


def _body(plan: GraphPlan, number: dict[str, str], mesh: DeviceMatrix) -> Iterator[str]:
    copies: dict[int, str] = {}
    for name, op in plan.operators.items():
        taken = []
        for place, (tensor, fetch) in enumerate(zip(op.operator.inputs, plan.fetches[name])):
            if fetch.copy in copies:
                taken.append(copies[fetch.copy])
                continue
            variable = number[tensor] if fetch.source is None else copies[fetch.source]
            for i, line in enumerate(_moves(fetch.steps, mesh)):
                if i == 0:
                    yield f"{number[name]}_{place} = {variable}  # {tensor} for {name}"
                    variable = f"{number[name]}_{place}"
                yield line.format(variable)
            if fetch.copy is not None:
                copies[fetch.copy] = variable
            taken.append(variable)
        yield f"{number[name]} = {_expression(op, taken, mesh)}  # {name}"
        for line in _moves(op.reduction, mesh):
            yield line.format(number[name])


def _expression(op: DistributedOperator, taken: Sequence[str], mesh: DeviceMatrix) -> str:
    kind, settings = op.operator.kind, dict(op.operator.settings)
    if kind == "opaque":
        raise LayoutError(f"'{op.operator.name}' is opaque: jax computes it, and this program has no code for it")
    if kind == "matmul":
        sides = (f"jnp.swapaxes({x}, -1, -2)" if settings[f"transpose_{n}"] else x for n, x in zip("ab", taken))
        return " @ ".join(sides)
    settings |= {"inputs": ", ".join(taken), "shape": op.local.local_shape}
    if kind == "reduce_mean":
        settings["size"] = op.operator.input_shapes[0][settings["axis"]]
    elif kind in ("gather", "scatter"):
        settings["start"] = _first_row(op.inputs[0] if kind == "gather" else op.local, mesh)
    elif kind == "update":
        state = op.inputs[1].shape[: len(op.inputs[1].shape) - len(op.inputs[0].shape)]
        adam = f"{taken[1]}[0] / (jnp.sqrt({taken[1]}[1]) + {EPSILON})"
        settings["by"] = taken[1] if not state else f"{taken[1]}[0]" if state == (1,) else adam
    return ELEMENTWISE[kind].format(*taken, **settings)


def _first_row(table: TensorLayout, mesh: DeviceMatrix) -> str:
    """The number of the first row in this device's part of a table."""
    axes = _on(table, mesh).tensor_map[0]
    return f"lax.axis_index({_names(axes, mesh)}) * {table.local_shape[0]}" if axes else "0"


def _named(steps: Sequence[Step]) -> list[Step]:
    named: list[Step] = []
    for step in steps:
        if step.name == "reduce-scatter" and step.source.largest:  # which JAX has for sums only
            full = replace(step.source, partial=step.target.partial)
            named += [Step("all-reduce", step.source, full), Step("slice", full, step.target)]
            continue
        is_named = step.name not in ("exchange", "sum exchange")
        named += [step] if is_named else redistribute(step.source, step.target, named_only=True).steps
    return named


def _moves(steps: Sequence[Step], mesh: DeviceMatrix) -> Iterator[str]:
    """The collectives of steps, of which each replaces the variable {0}."""
    return (f"{{0}} = {_collective(step, mesh)}" for step in _named(steps))


def _collective(step: Step, mesh: DeviceMatrix) -> str:
    source, target = _on(step.source, mesh), _on(step.target, mesh)
    before, after = source.tensor_map, target.tensor_map
    if step.name == "all-reduce":
        reduce = "pmax" if step.source.largest else "psum"
        return f"lax.{reduce}({{0}}, {_names(Step(step.name, source, target).reduced, mesh)})"
    if step.name == "permute":
        return _permute(step, mesh)
    changed = [dim for dim in range(len(before)) if before[dim] != after[dim]]
    expression = "{0}"
    if step.name == "all-to-all":
        lost, gained = sorted(changed, key=lambda dim: len(after[dim]) - len(before[dim]))
        axes = _names(before[lost][len(after[lost]) :], mesh)
        return f"lax.all_to_all({expression}, {axes}, split_axis={gained}, concat_axis={lost}, tiled=True)"
    for dim in changed:
        more, fewer = (after[dim], before[dim]) if len(after[dim]) > len(before[dim]) else (before[dim], after[dim])
        axes = _names(more[len(fewer) :], mesh)
        if step.name == "slice":
            size = step.target.local_shape[dim]
            expression = f"lax.dynamic_slice_in_dim({expression}, lax.axis_index({axes}) * {size}, {size}, axis={dim})"
        elif step.name == "all-gather":
            expression = f"lax.all_gather({expression}, {axes}, axis={dim}, tiled=True)"
        else:
            expression = f"lax.psum_scatter({expression}, {axes}, scatter_dimension={dim}, tiled=True)"
    return expression


def _permute(step: Step, mesh: DeviceMatrix) -> str:
    """Each device gets its new piece from one that holds it: from itself, if it does."""
    held, wanted = (list(map(tuple, parts(layout).tolist())) for layout in (step.source, step.target))
    left = {device for device in range(mesh.size) if held[device] != wanted[device]}
    free = set(left)
    pairs = [(device, device) for device in range(mesh.size) if device not in left]
    for device in sorted(left):
        sender = next(other for other in sorted(free) if held[other] == wanted[device])
        free.discard(sender)
        pairs.append((sender, device))
    return f"lax.ppermute({{0}}, {_names(tuple(range(len(mesh.shape))), mesh)}, {sorted(pairs)})"


def _names(axes: Axes, mesh: DeviceMatrix) -> Any:
    return tuple(mesh.names[axis] for axis in axes)


# --- A plan as JSON, and the writers by name ---


def plan_to_data(plan: GraphPlan) -> dict[str, Any]:
    """Numbers, texts, lists and dictionaries: the mesh; the axes that split each tensor, as it is stored and as each
    operator takes it; the moves with their steps and bytes; and what all of it costs."""
    mesh = plan.graph.mesh
    moves = [
        {"tensor": edge.tensor, "for": edge.operator, "steps": _steps(plan.redistribution(edge).named_steps, plan)}
        for edge in plan.edges
        if edge.bytes
    ]
    summed = {name: op.reduction for name, op in plan.operators.items() if op.reduction}
    return {
        "mesh": dict(zip(mesh.names, mesh.shape)) if mesh else {"devices": plan.graph.devices},
        "tensors": {
            name: {"layout": _layout(plan.layout(name)), "shape": list(shape)}
            for name, shape in plan.graph.shapes.items()
        },
        "operators": {
            name: {"kind": op.operator.kind, "strategy": op.strategy, "inputs": list(map(_layout, op.inputs))}
            for name, op in plan.operators.items()
        },
        "moves": moves,
        "sums": [{"tensor": name, "steps": _steps(steps, plan)} for name, steps in summed.items()],
        "bytes": plan.bytes,
        "memory": plan.memory,
        "peak": plan.peak,
        "flops": plan.flops,
    }


def plan_json(plan: GraphPlan) -> str:
    """The same as text."""
    return json.dumps(plan_to_data(plan), indent=1) + "\n"


def _layout(layout: TensorLayout) -> dict[str, Any]:
    description: dict[str, Any] = {"split": [[layout.matrix.names[a] for a in axes] for axes in layout.tensor_map]}
    description["piece"] = list(layout.local_shape)
    return description | ({"partial": [layout.matrix.names[a] for a in layout.partial]} if layout.partial else {})


def _steps(steps: Any, plan: GraphPlan) -> list[dict[str, Any]]:
    return [{"name": step.name, "bytes": step.total * plan.graph.itemsize} for step in steps]


WRITERS: Mapping[str, Callable[[GraphPlan], str]] = {
    "jax": jax_code,
    "json": plan_json,
}
"""By name."""


def code_of(plan: GraphPlan, framework: str) -> str:
    """The plan as a program of "jax", or as "json".

    Raises:
        LayoutError: there is no such framework, or the plan cannot be written for it.
    """
    if framework not in tuple(WRITERS):
        raise LayoutError(SAYS("no such framework", framework=framework, advice=nearest_name(str(framework), WRITERS)))
    return WRITERS[framework](plan)


SAYS = Sentences(
    {
        "axes without names": "a program of JAX needs a mesh with named axes; plan a Graph(mesh=mesh(data=2, model=4))",
        "uneven pieces": "JAX has no uneven pieces, and '{name}' is padded; pad it with graph.pad",
        "no such framework": "there is no framework {framework!r}; {advice}",
    }
)
"""The refusals of this chapter: a reason, and a sentence over its facts."""
