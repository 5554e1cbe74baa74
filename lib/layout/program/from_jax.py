"""A function of JAX as a graph: its jaxpr, operator by operator. Needs jax, which is imported when it is used.

A primitive that no operator stands for becomes an opaque operator, which jax computes.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from inspect import signature
from itertools import islice
from math import prod
from typing import Any

import numpy as np

from lib.layout.errors import LayoutError
from lib.layout.layouts.device_matrix import DeviceMatrix

from .graph import Graph
from .imported_graph import COLLECTIVES, ONE_DEVICE, REAL, ImportedGraph, Place, is_key, is_real, jax_here
from .jax_opaque import from_jax_array, opaque, to_jax
from .jax_primitives import CALLS, ELEMENTWISE, HANDLERS, SAME_ANYWHERE
from .jax_values import Importer, Known, NoOperatorError, TensorView, Value

MAX_KNOWN = 1 << 16
"""Elements of a constant that is computed while a function is imported."""
SCOPE = re.compile(r"(?<![^/])[\w-]+(?![^/])")
"""The parts of a name stack that jax.named_scope gave, rather than a transformation or the text of an einsum."""


def from_jax(
    function: Callable[..., Any],
    *shapes: Any,
    devices: int | None = None,
    mesh: DeviceMatrix | None = None,
    parameters: Collection[str] = (),
    uneven: bool | None = None,
    fused: bool = True,
) -> ImportedGraph:
    """The graph of a function of JAX for arguments of these shapes.

    An argument is given by its shape, for float32, or by anything that has a shape and a dtype; so are the leaves of
    any pytree. What is in one is a parameter, called by its path ('p.w1' for argument p), and so is an
    argument that is named in `parameters`; all others are inputs. Functions that JAX calls within, as of `jit`,
    are part of the graph, and so is every step of a `scan`; the layouts of its first step hold for all. Types are not
    converted; if floats differ in size, all count as the largest. Sharding constraints are ignored, because the plan
    decides. Rows of a `gather` are taken to be in the table. `uneven` is the graph's. A softmax is one operator, whose
    axis is not split; unless `fused`, it is a maximum, an exponential, a sum and a quotient, and its axis may be split.

    Raises:
        LayoutError: jax is missing or cannot trace the function, an argument has no shape, or the function has complex
            numbers or collectives.
    """
    jax = jax_here()
    structs = [_structs(jax, shape, f"argument {i}") for i, shape in enumerate(shapes)]
    names, roles = _arguments(jax, function, structs, parameters)
    leaves = jax.tree_util.tree_leaves(structs)
    sizes = {leaf.dtype.itemsize for leaf in leaves if jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating)}
    graph = ImportedGraph(devices, mesh, max(sizes, default=4), uneven)
    try:
        closed = jax.make_jaxpr(function)(*structs)
    except LayoutError:
        raise
    except Exception as why:
        first = (str(why).strip().splitlines() or [type(why).__name__])[0]
        raise LayoutError(f"jax cannot trace {_name(function)} with these shapes: {first}") from why
    for name, leaf in zip(names, leaves):
        (graph.parameter if name in roles else graph.input)(name, Importer.shape_of(leaf))
    graph.arguments, graph.structs = tuple(names), tuple(structs)
    importer = Importer(graph, fused)
    importer.where = _name(function)
    given: list[Value] = [TensorView.whole(name, graph.shapes[name]) for name in names]
    results = _follow(importer, closed.jaxpr, _constants(importer, closed), given, "", ())
    _finish(graph, [importer.plain(value) for value in results])
    return graph


def _follow(
    importer: Importer, jaxpr: Any, consts: Sequence[Value], given: Sequence[Value], scope: str, at: Place | None
) -> list[Value]:
    known: dict[Any, Value] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *given)))

    def read(var: Any) -> Value:
        return Known(np.asarray(var.val)) if hasattr(var, "val") else known[var]

    for number, eqn in enumerate(jaxpr.eqns):
        if all(type(var).__name__ == "DropVar" for var in eqn.outvars):
            continue  # nobody reads it
        inputs = [read(var) for var in eqn.invars]
        inside = ".".join([*filter(None, [scope]), *SCOPE.findall(str(eqn.source_info.name_stack))])
        is_backward = "transpose(" in str(eqn.source_info.name_stack)  # no line of the function has such a value
        importer.place = None if at is None or is_backward else (*at, number)
        outputs = _equation(importer, eqn, inputs, inside)
        known.update(zip(eqn.outvars, outputs))
    return [read(var) for var in jaxpr.outvars]


def _equation(importer: Importer, eqn: Any, inputs: list[Value], scope: str) -> list[Value]:
    name = eqn.primitive.name
    outer, place, before = importer.where, importer.place, len(importer.graph.operators)
    importer.scope, importer.where = scope, jax_here().extend.source_info_util.summarize(eqn.source_info) or outer
    try:
        outputs = _made(importer, name, eqn, inputs)
        for added in islice(importer.graph.operators, before, None):
            importer.graph.lines.setdefault(added, importer.where)
        if (
            place is not None
            and len(outputs) == 1
            and isinstance(outputs[0], TensorView)
            and importer.is_plain(outputs[0])
        ):
            importer.graph.places.setdefault(outputs[0].name, place)
        return outputs
    finally:
        importer.where = outer


def _made(importer: Importer, name: str, eqn: Any, inputs: list[Value]) -> list[Value]:
    if name in CALLS:
        inner = next(eqn.params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in eqn.params)
        jaxpr, consts = getattr(inner, "jaxpr", inner), _constants(importer, inner)
        return _follow(importer, jaxpr, consts, inputs, importer.scope, importer.place)
    if name == "scan":
        return _scan(importer, eqn.params, inputs)
    if name in COLLECTIVES:
        raise LayoutError(f"{importer.where}: jax's '{name}' is of many devices; {ONE_DEVICE}")
    for aval in (var.aval for var in eqn.outvars):
        if not is_real(dtype := getattr(aval, "dtype", None)) and not is_key(dtype):
            raise LayoutError(f"{importer.where}: jax's '{name}' makes {aval.str_short()}, and {REAL}")
    constants = [value for value in inputs if isinstance(value, Known)]
    if len(constants) == len(inputs) and (known := _evaluated(eqn, constants)) is not None:
        return known
    if name in SAME_ANYWHERE:
        return inputs
    importer.types = [var.aval.dtype for var in eqn.invars]
    handler = HANDLERS.get(name)
    if handler is None:
        return opaque(importer, eqn, inputs)
    try:
        output = handler(importer, {key: _plain(value) for key, value in eqn.params.items()}, inputs)
    except (LayoutError, NoOperatorError):
        return opaque(importer, eqn, inputs)
    return output if isinstance(output, list) else [output]


def _evaluated(eqn: Any, inputs: list[Known]) -> list[Value] | None:
    """What jax computes from constants, whatever the primitive is: scales, positions, small masks.

    None for what would be large: it becomes operators, such as a comparison of rows and columns.
    """
    name, settings = eqn.primitive.name, eqn.params
    shape = tuple(eqn.outvars[0].aval.shape) if eqn.outvars else ()
    if name == "broadcast_in_dim":
        return None  # it needs no memory
    if name == "iota":
        ahead = [dim for dim in range(len(shape)) if dim != settings["dimension"]]
        numbers = np.arange(shape[settings["dimension"]], dtype=settings["dtype"])
        return [Known(np.broadcast_to(np.expand_dims(numbers, ahead), shape))]
    arrays = [value.array for value in inputs]
    if name in ELEMENTWISE:  # once for all elements that are the same element
        wide = np.broadcast_arrays(*arrays) if arrays else []
        same = [all(array.strides[dim] == 0 for array in wide) for dim in range(len(shape))]
        at = tuple(slice(1) if yes else slice(None) for yes in same)
        arrays = [array[at] if array.shape else array for array in wide]
        if prod(n for n, yes in zip(shape, same) if not yes) > MAX_KNOWN:
            return None
    elif inputs and sum(prod(var.aval.shape) for var in eqn.outvars) > MAX_KNOWN:
        return None
    given = [to_jax(array, var.aval.dtype) for array, var in zip(arrays, eqn.invars)]
    made = eqn.primitive.bind(*given, **settings)
    results = [
        np.asarray(x) if is_real(x.dtype) else from_jax_array(x)
        for x in (made if eqn.primitive.multiple_results else [made])
    ]
    return [Known(np.broadcast_to(array, Importer.shape_of(var.aval))) for array, var in zip(results, eqn.outvars)]


def _scan(importer: Importer, settings: Any, inputs: list[Value]) -> list[Value]:
    """The steps of a loop, one after the other; their results are stacked."""
    inner, scope = settings["jaxpr"], importer.scope
    split = settings["num_consts"], settings["num_consts"] + settings["num_carry"]
    fixed, carry, rows = inputs[: split[0]], inputs[split[0] : split[1]], inputs[split[1] :]
    steps = range(settings["length"])
    outputs: dict[int, list[Value]] = {}
    first: list[str] | None = None
    for step in reversed(steps) if settings["reverse"] else steps:
        inside = ".".join(filter(None, [scope, f"step{step}"]))
        asked, before = len(importer.added), len(importer.graph.operators)
        slices = [_row(importer, row, step) for row in rows]
        results = _follow(importer, inner.jaxpr, _constants(importer, inner), [*fixed, *carry, *slices], inside, None)
        importer.scope = scope
        first = first or importer.added[asked:]
        _tie(importer.graph, first, importer.added[asked:], before)
        carry, outputs[step] = results[: len(carry)], results[len(carry) :]
    stacks = []
    for values in zip(*(outputs[step] for step in steps)):
        asked, before = len(importer.added), len(importer.graph.operators)
        stacks.append(HANDLERS["stack"](importer, {"axis": 0}, list(values)))
        thin = importer.added[asked:-1]
        _tie(importer.graph, thin[:1] * len(thin), thin, before)
    return [*carry, *stacks]  # type: ignore[list-item]


def _tie(graph: ImportedGraph, first: Sequence[str], later: Sequence[str], before: int) -> None:
    """Operators of a step of a loop have the layouts of the first step's, if both steps are alike."""
    new = set(islice(graph.operators, before, None))
    ops = graph.operators
    if [(ops[a].kind, ops[a].input_shapes) for a in first] == [(ops[b].kind, ops[b].input_shapes) for b in later]:
        graph.repeats.update({b: graph.repeats.get(a, a) for a, b in zip(first, later) if a != b and b in new})


def _row(importer: Importer, value: Value, number: int) -> Value:
    """A part of a stack of tensors."""
    if isinstance(value, Known):
        return Known(value.array[number])
    name, shape = importer.plain(value), value.shape
    part = importer.add("slice", name, axis=0, start=number, stop=number + 1) if shape[0] > 1 else None
    return importer.add("reshape", part.name if part else name, shape=shape[1:])


def _constants(importer: Importer, closed: Any) -> list[Value]:
    arrays = list(getattr(closed, "consts", ()))
    for array in arrays:
        if not is_real(dtype := getattr(array, "dtype", None)) and not is_key(dtype):
            raise LayoutError(f"{importer.where}: a constant has the type {dtype}, and {REAL}")
    return [Known(from_jax_array(array) if is_key(array.dtype) else np.asarray(array)) for array in arrays]


def _plain(setting: Any) -> Any:
    """A setting with Python's integers: where vmap has moved an axis, jax gives numpy's."""
    if type(setting) in (tuple, list):
        return type(setting)(map(_plain, setting))
    return int(setting) if isinstance(setting, np.integer) else setting


def _finish(graph: ImportedGraph, results: Sequence[str]) -> None:
    needed = set(results)
    for name, op in reversed(graph.operators.items()):
        needed.update(op.inputs if name in needed else ())
    for name in [name for name in graph.operators if name not in needed]:
        del graph.operators[name], graph.shapes[name]
    for name in [name for name in graph.constants if name not in needed]:
        del graph.constants[name], graph.sources[name], graph.shapes[name]
    roots: dict[str, str] = {}
    for name, first in [*graph.repeats.items()]:
        del graph.repeats[name]
        root = roots.setdefault(first, first if first in graph.operators else name)
        if root != name and name in graph.operators:
            graph.repeats[name] = root
    named: dict[str, str] = {}
    final = []
    for i, name in enumerate(results):
        called = "result" if len(results) == 1 else f"result{i}"
        in_loop = name in graph.repeats or name in graph.repeats.values()
        if name in graph.sources or name in named or in_loop:  # a result is an operator of its own
            final.append(graph.reshape(_free(graph, called), name, graph.shapes[name]))
        else:
            named[name] = _free(graph, called)
            final.append(named[name])
    operators = {
        named.get(name, name): replace(op, name=named.get(name, name), inputs=tuple(named.get(x, x) for x in op.inputs))
        for name, op in graph.operators.items()
    }
    for notes in (graph.lines, graph.places):
        moved: dict[str, Any] = {named.get(name, name): note for name, note in notes.items()}
        notes.clear()
        notes.update(moved)
    graph.operators.clear()
    graph.operators.update(operators)
    shapes = {named.get(name, name): shape for name, shape in graph.shapes.items()}
    graph.shapes.clear()
    graph.shapes.update(shapes)
    graph.results = tuple(final)


def _free(graph: Graph, name: str) -> str:
    while name in graph.shapes:
        name += "_"
    return name


def _structs(jax: Any, given: Any, where: str) -> Any:
    """A pytree of structs for one of shapes, arrays or structs."""

    def is_shape(x: Any) -> bool:
        return type(x) is tuple and all(type(n) is int for n in x)

    def struct(path: Any, leaf: Any) -> Any:
        if is_shape(leaf) and all(n > 0 for n in leaf):
            return jax.ShapeDtypeStruct(leaf, np.float32)
        at = f"{where}{', ' * bool(path)}{_path(jax, path)}"
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            raise LayoutError(
                f"{at}: a shape is a tuple of positive whole numbers, or has a shape and a dtype; got {leaf!r:.60}"
            )
        if not is_real(leaf.dtype) and not is_key(leaf.dtype):
            raise LayoutError(f"{at} has the type {leaf.dtype}, and {REAL}")
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)

    return jax.tree_util.tree_map_with_path(struct, given, is_leaf=is_shape)


def _path(jax: Any, path: Any) -> str:
    return str(jax.tree_util.keystr(path, simple=True, separator="."))


def _arguments(
    jax: Any, function: Callable[..., Any], structs: Sequence[Any], parameters: Collection[str]
) -> tuple[list[str], set[str]]:
    names: list[str] = []
    roles: set[str] = set()
    arguments = list(_own_names(function, len(structs)))
    if unknown := [name for name in parameters if name not in arguments]:
        raise LayoutError(f"{_name(function)} has no argument '{unknown[0]}'; it has {', '.join(arguments)}")
    for name, tree in zip(arguments, structs):
        for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]:
            full = ".".join([name, *filter(None, [_path(jax, path)])])
            names.append(full)
            if path or name in parameters:
                roles.add(full)
    return names, roles


def _own_names(function: Callable[..., Any], count: int) -> Iterator[str]:
    try:
        known = [
            p.name
            for p in signature(function).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):
        known = []
    for i in range(count):
        yield known[i] if i < len(known) else f"argument{i}"


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)
