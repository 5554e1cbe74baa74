"""A function of JAX as a graph: its jaxpr, operator by operator. Needs jax, which is imported when it is used.

A primitive that no operator stands for becomes an opaque operator, which jax computes; a refusal would end most imports
at a detail.

Which operators stand for a primitive is left to `jax_primitives`. Rejected: a table of the dimensions that each
primitive may split. JAX's own rules of batching prove that for every primitive, new ones included.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from inspect import signature
from itertools import islice, product
from math import prod
from typing import Any

import numpy as np

from lib.layout.graph import Graph
from lib.layout.jax_primitives import (
    COLLECTIVES,
    ELEMENTWISE,
    HANDLERS,
    ONE_DEVICE,
    REAL,
    SAME_ANYWHERE,
    Importer,
    Known,
    NoOperatorError,
    Place,
    Shape,
    TensorView,
    Value,
    called_jaxpr,
    is_key,
    is_real,
    jax_here,
)
from lib.layout.jax_primitives import ImportedGraph as ImportedGraph
from lib.layout.layouts import Array, DeviceMatrix, LayoutError

# --- Primitives of JAX that no operator stands for: an opaque operator for each output, which JAX itself computes ---
#
# A dimension of it may be split where the primitive's batching rule proves that: where the primitive is `vmap`, over
# that dimension, of itself on tensors without the dimension. Every device has all of the other dimensions.

MAX_TRIES = 300
"""Calls of batching rules for a primitive, after which its other dimensions are not split."""
Axes = tuple[int | None, ...]
"""By input: the dimension that is mapped."""
Ends = tuple[int, ...]
"""By output: where it is afterwards."""
Function = Callable[..., Sequence[Any]]


@dataclass(frozen=True)
class OpaqueCall:
    """One output of a primitive, from pieces of its inputs. Calls with the same `key` compute the same."""

    key: tuple[Any, ...]
    output: int
    function: Function = field(compare=False)
    types: tuple[Any, ...] = field(compare=False)
    """Of the inputs, in JAX."""

    def __call__(self, arrays: Sequence[Array]) -> Array:
        made = self.function(*map(to_jax, arrays, self.types))[self.output]
        return from_jax_array(made)


def to_jax(array: Array, dtype: Any) -> Any:
    """In the type that a primitive takes."""
    jax = jax_here()
    if is_key(dtype):
        return jax.random.wrap_key_data(jax.numpy.asarray(array, np.uint32), impl=dtype._impl.name)
    whole = array != 0 if dtype == np.bool_ else array
    return jax.numpy.asarray(whole).astype(dtype)


def from_jax_array(array: Any) -> Array:
    """In numpy's types: keys as their data, truth values as 0 and 1, and bfloat16 as float32, which has them all."""
    jax = jax_here()
    if is_key(array.dtype):
        return np.asarray(jax.random.key_data(array))
    if array.dtype == np.bool_:
        return np.asarray(array).astype(np.int32)
    return np.asarray(array.astype(np.float32) if np.asarray(array).dtype.kind == "V" else array)


def opaque(importer: Importer, eqn: Any, inputs: list[Value]) -> list[Value]:
    """The outputs of a primitive; what they share is computed for each."""
    primitive, settings = eqn.primitive, dict(eqn.params)
    types = [var.aval for var in eqn.invars]
    known = {i: value.array for i, value in enumerate(inputs) if isinstance(value, Known)}
    fixed = {i: array for i, array in known.items() if not (array.shape and array.size)}  # numbers, and what is empty
    taken = [i for i in range(len(inputs)) if i not in fixed]
    shapes = tuple(tuple(var.aval.shape) for var in eqn.outvars)
    special = SPECIAL.get(primitive.name)
    if special:
        function, levels = special(settings, [tuple(aval.shape) for aval in types])
    else:
        function, levels = _mapped(primitive, settings, types, shapes)

    def of_taken(*arrays: Any) -> Sequence[Any]:
        every = iter(arrays)
        return function(*(to_jax(fixed[i], types[i].dtype) if i in fixed else next(every) for i in range(len(types))))

    names = [importer.plain(inputs[i]) for i in taken]
    if not names:  # it computes from constants alone, as random bits do
        names, taken, of_taken = [importer.plain(inputs[0])], [0], function
    rows = [[f"a{i}.{dim}" for dim in range(len(importer.graph.shapes[name]))] for i, name in zip(taken, names)]
    columns = [[f"z{i}.{dim}" for dim in range(len(importer.shape_of(var.aval)))] for i, var in enumerate(eqn.outvars)]
    for number, (axes, ends) in enumerate(levels):
        for row, i in zip(rows, taken):
            if (dim := axes[i]) is not None:
                row[dim] = f"m{number}"
        for column, end in zip(columns, ends):
            column[end] = f"m{number}"
    numbers = tuple((i, array.tobytes()) for i, array in fixed.items())
    key = primitive.name, object() if _calls(settings) else str(settings), tuple(levels), numbers, tuple(types)
    outputs: list[Value] = []
    for i, (var, column) in enumerate(zip(eqn.outvars, columns)):
        call = OpaqueCall((*key, shapes[i]), i, of_taken, tuple(types[j].dtype for j in taken))
        free = [f"m{number}" for number in range(len(levels))]
        shape = importer.shape_of(var.aval)
        outputs.append(
            importer.add_opaque(primitive.name, names, shape, tuple(map(tuple, rows)), tuple(column), free, call)
        )
    return outputs


Levels = list[tuple[Axes, Ends]]
"""For each dimension that may be split: where each input has it, if it does, and where each output does."""


def _mapped(
    primitive: Any, settings: dict[str, Any], types: Sequence[Any], shapes: Sequence[Shape]
) -> tuple[Function, Levels]:
    """The primitive as `vmap` over every dimension for which its batching rule proves that."""
    jax = jax_here()
    avals = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in types]
    places = [list(range(len(aval.shape))) for aval in avals]
    ends = [list(range(len(shape))) for shape in shapes]
    levels: Levels = []
    maps: Levels = []
    while (proven := _level(primitive, settings, avals, [len(row) for row in ends])) is not None:
        settings, axes, out = proven
        maps.append((axes, out))
        levels.append(
            (
                tuple(None if dim is None else row.pop(dim) for row, dim in zip(places, axes)),
                tuple(row.pop(dim) for row, dim in zip(ends, out)),
            )
        )
        avals = [_without(aval, dim) for aval, dim in zip(avals, axes)]

    def function(*arrays: Any) -> Sequence[Any]:
        called = _bound(primitive, settings)
        for axes, out in reversed(maps):
            called = jax.vmap(called, in_axes=axes, out_axes=list(out))
        return called(*arrays)

    return function, levels


def _bound(primitive: Any, settings: dict[str, Any]) -> Function:
    def called(*arrays: Any) -> Sequence[Any]:
        made = primitive.bind(*arrays, **settings)
        return list(made) if primitive.multiple_results else [made]

    return called


def _level(
    primitive: Any, settings: dict[str, Any], avals: Sequence[Any], ranks: Sequence[int]
) -> tuple[dict[str, Any], Axes, Ends] | None:
    """A dimension over which the primitive is mapped: the settings of the mapped one, and where the dimension is."""
    if _calls(settings):
        return None
    jax = jax_here()
    tries = 0
    for axes in _assignments([tuple(aval.shape) for aval in avals]):
        first = next(dim for dim in axes if dim is not None)
        smaller = [_without(aval, dim) for aval, dim in zip(avals, axes)]
        for less in _guesses(settings, first):
            for end in range(min(ranks, default=0)):
                tries += 1
                if tries > MAX_TRIES:
                    return None
                called, out = _bound(primitive, less), (end,) * len(ranks)
                try:
                    jax.eval_shape(called, *smaller)
                    jaxpr = jax.make_jaxpr(jax.vmap(called, in_axes=axes, out_axes=list(out)))(*avals).jaxpr
                except Exception:  # the smaller tensors do not fit these settings
                    break
                if _is_only(jaxpr, primitive, settings):
                    return less, axes, out
    return None


def _is_only(jaxpr: Any, primitive: Any, settings: dict[str, Any]) -> bool:
    """True if a jaxpr is this primitive with these settings, of all its inputs in order, and nothing else."""
    if len(jaxpr.eqns) != 1:
        return False
    (eqn,) = jaxpr.eqns
    is_alike = eqn.primitive is primitive and str(_in_order(eqn.params)) == str(_in_order(settings))
    return is_alike and list(eqn.invars) == list(jaxpr.invars) and list(eqn.outvars) == list(jaxpr.outvars)


def _assignments(shapes: Sequence[Shape]) -> Iterator[Axes]:
    """A dimension of each input, or None, all of one size: first those that are in the same place everywhere."""
    choices = [(*(dim for dim, n in enumerate(shape) if n > 1), None) for shape in shapes]
    found = []
    for axes in product(*choices):
        sizes = {shape[dim] for shape, dim in zip(shapes, axes) if dim is not None}
        if len(sizes) == 1:
            found.append(axes)
        if len(found) > MAX_TRIES:
            break
    yield from sorted(found, key=lambda axes: (len(set(axes)), axes.count(None)))


def _guesses(settings: dict[str, Any], dim: int) -> Iterator[dict[str, Any]]:
    """What the settings may be on tensors without a dimension: numbers of later dimensions are less by one."""

    def options(value: Any) -> list[Any]:
        if isinstance(value, bool):
            return [value]
        if isinstance(value, int | np.integer):
            return [value, int(value) - 1] if value > dim else [value]
        if type(value) is tuple and value and all(isinstance(n, int | np.integer) for n in value):
            lower = tuple(int(n) - (n > dim) for n in value)
            return list(dict.fromkeys([value, lower, *([value[:dim] + value[dim + 1 :]] if len(value) > dim else [])]))
        return [value]

    for values in product(*map(options, settings.values())):
        yield dict(zip(settings, values))


def _without(aval: Any, dim: int | None) -> Any:
    if dim is None:
        return aval
    return jax_here().ShapeDtypeStruct((*aval.shape[:dim], *aval.shape[dim + 1 :]), aval.dtype)


def _in_order(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _in_order(value[name]) for name in sorted(value)}
    if type(value) in (tuple, list):
        return [_in_order(entry) for entry in value]
    return int(value) if isinstance(value, np.integer) else value


def _calls(settings: dict[str, Any]) -> bool:
    """True for a primitive that calls functions, which have rules of their own."""
    groups = (value if isinstance(value, tuple | list) else (value,) for value in settings.values())
    return any("Jaxpr" in type(value).__name__ for group in groups for value in group)


def _slice(settings: dict[str, Any], shapes: Sequence[Shape]) -> tuple[Function, Levels]:
    """A part from a computed start: it has all of a dimension that it is as long as, wherever it would start."""
    sizes = settings["slice_sizes"]
    full = [dim for dim, (n, size) in enumerate(zip(shapes[0], sizes)) if n == size and n > 1]
    nowhere = (None,) * (len(shapes) - 1)

    def function(x: Any, *starts: Any) -> Sequence[Any]:
        local = [x.shape[dim] if dim in full else size for dim, size in enumerate(sizes)]
        return [jax_here().lax.dynamic_slice(x, starts, local)]

    return function, [((dim, *nowhere), (dim,)) for dim in full]


def _update(settings: dict[str, Any], shapes: Sequence[Shape]) -> tuple[Function, Levels]:
    """A part is written from a computed start: all of a dimension that it is as long as."""
    full = [dim for dim, (n, size) in enumerate(zip(*shapes[:2])) if n == size and n > 1]
    nowhere = (None,) * (len(shapes) - 2)

    def function(x: Any, part: Any, *starts: Any) -> Sequence[Any]:
        return [jax_here().lax.dynamic_update_slice(x, part, starts)]

    return function, [((dim, dim, *nowhere), (dim,)) for dim in full]


SPECIAL = {"dynamic_slice": _slice, "dynamic_update_slice": _update}
"""Primitives whose rules of batching are less than what is known of them."""


# --- The import ---

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
    if (inner := called_jaxpr(eqn)) is not None:
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
