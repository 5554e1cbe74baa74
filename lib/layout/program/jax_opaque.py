"""Primitives of JAX that no operator stands for: an opaque operator for each output, which JAX itself computes.

A dimension of it may be split where the primitive's batching rule proves that: where the primitive is `vmap`, over that
dimension, of itself on tensors without the dimension. Every device has all of the other dimensions.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from lib.layout.layouts.pieces import Array

from .imported_graph import is_key, jax_here
from .jax_values import Importer, Known, Shape, Value

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
    is_alike = eqn.primitive is primitive and str(_plain(eqn.params)) == str(_plain(settings))
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


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(value[name]) for name in sorted(value)}
    if type(value) in (tuple, list):
        return [_plain(entry) for entry in value]
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
