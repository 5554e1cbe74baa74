"""Groups of JAX's primitives that are one operator here, and rows or elements of tensors by number."""

from typing import Any

import numpy as np

from lib.layout.errors import LayoutError

from .jax_values import Importer, Known, TensorView, Value
from .operators import Operator


def gathered(importer: Importer, settings: dict[str, Any], inputs: list[Value]) -> Value:
    """Whole rows of a table, or one element of each row."""
    table, rows = inputs
    how = settings["dimension_numbers"]
    last = len(rows.shape) - 1
    taken = tuple(how.offset_dims), tuple(how.collapsed_slice_dims), tuple(how.start_index_map)
    if _is_along(table.shape, rows.shape, how.collapsed_slice_dims, how.operand_batching_dims):
        mask = _at_number(importer, rows, table.shape)
        chosen = importer.add("multiply", importer.plain(table), mask)
        return _with_one(importer, importer.add("reduce_sum", chosen.name, axis=len(table.shape) - 1))
    is_rows = len(table.shape) == 2 and rows.shape[-1:] == (1,) and taken == ((last,), (0,), (0,))
    if not is_rows or tuple(settings["slice_sizes"]) != (1, table.shape[1]):
        raise LayoutError(
            "only full rows of a two-dimensional table can be taken, as table[rows], or one element of each row, as "
            "take_along_axis does; reshape it first"
        )
    flat = importer.tensor(rows).without([last])
    return importer.add("gather", importer.plain(table), importer.plain(flat))


def scattered(importer: Importer, settings: dict[str, Any], inputs: list[Value]) -> Value:
    """What `gathered` took, added up where it belongs: its gradient."""
    before, rows, given = inputs
    how = settings["dimension_numbers"]
    last = len(rows.shape) - 1
    if not isinstance(before, Known) or before.scalar != 0:
        raise LayoutError("it adds to something other than zeros; add that to the result instead")
    if _is_along(before.shape, rows.shape, how.inserted_window_dims, how.operand_batching_dims):
        size = before.shape[-1]
        flat = importer.add("reshape", importer.plain(given), shape=before.shape[:-1])
        wide = importer.add("repeat", flat.name, axis=len(before.shape) - 1, size=size)
        return importer.add("multiply", wide.name, _at_number(importer, rows, before.shape))
    windows = tuple(how.update_window_dims), tuple(how.inserted_window_dims), tuple(how.scatter_dims_to_operand_dims)
    if len(before.shape) != 2 or windows != ((last,), (0,), (0,)):
        raise LayoutError("only full rows of a two-dimensional table can be added up, or one element of each row")
    numbers = importer.plain(importer.tensor(rows).without([last]))
    return importer.add("scatter", importer.plain(given), numbers, size=before.shape[0])


def sliced(importer: Importer, settings: dict[str, Any], inputs: list[Value]) -> Value:
    """A part whose place is known when the function is imported."""
    x, *starts = inputs
    made = TensorView.whole(importer.plain(x), x.shape)
    for axis, (start, size) in enumerate(zip(starts, settings["slice_sizes"])):
        if not isinstance(start, Known) or start.scalar is None:
            raise LayoutError("the place of the part is computed; take the part outside, or by a constant")
        first = int(np.clip(start.scalar, 0, made.shape[axis] - size))
        if size != made.shape[axis]:
            made = importer.add("slice", made.name, axis=axis, start=first, stop=first + int(size))
    return made


def largest(importer: Importer, settings: dict[str, Any], inputs: list[Value]) -> list[Value]:
    """The largest elements of an axis, and their numbers."""
    name, k = importer.plain(inputs[0]), int(settings["k"])
    rank = len(inputs[0].shape)
    axis = settings.get("axis", rank - 1)
    order = tuple({axis: rank - 1, rank - 1: axis}.get(i, i) for i in range(rank))  # its own inverse
    if axis != rank - 1:
        name = importer.add("transpose", name, order=order).name
    found: list[Value] = [importer.add("largest", name, k=k, numbers=numbers) for numbers in (False, True)]
    return found if axis == rank - 1 else [importer.add("transpose", importer.plain(one), order=order) for one in found]


def _is_along(table: tuple[int, ...], rows: tuple[int, ...], gone: Any, batch: Any) -> bool:
    """True for one element of each row along the last axis."""
    last = len(table) - 1
    return tuple(gone) == (last,) and tuple(batch) == tuple(range(last)) and rows == (*table[:-1], 1, 1)


def _at_number(importer: Importer, rows: Value, shape: tuple[int, ...]) -> str:
    """1 where an element's place in its row is the row's number, otherwise 0."""
    axis, size = len(shape) - 1, shape[-1]
    flat = importer.add("reshape", importer.plain(rows), shape=shape[:-1])
    wide = importer.add("repeat", flat.name, axis=axis, size=size)
    places = importer.tensor(Known(np.arange(size, dtype=np.int32)))
    return importer.add("compare", wide.name, places.name, relation="equal").name


def _with_one(importer: Importer, value: TensorView) -> TensorView:
    """With a last dimension of size 1."""
    return value.broadcast((*value.shape, 1), range(len(value.shape)))


def mean_of(importer: Importer, total: Value, count: Value) -> Value | None:
    """reduce_sum / n, if n is the number of elements along that axis."""
    op = importer.operator(total)
    if op is None or op.kind != "reduce_sum" or not isinstance(count, Known) or not isinstance(total, TensorView):
        return None
    axis = dict(op.settings)["axis"]
    if count.scalar != op.input_shapes[0][axis]:
        return None
    made = importer.add("reduce_mean", op.inputs[0], axis=axis)
    return TensorView(made.name, total.shape, total.dims)


def softmax_of(importer: Importer, raised: Value, total: Value) -> Value | None:
    """exp(x - max(x)) / sum of that along the same axis."""
    exp, added = importer.operator(raised), importer.operator(total)
    if exp is None or added is None or (exp.kind, added.kind) != ("exp", "reduce_sum") or exp.name != added.inputs[0]:
        return None
    axis = dict(added.settings)["axis"]
    rest = [dim for dim in range(len(exp.output_shape)) if dim != axis]
    kept = [None if dim == axis else rest.index(dim) for dim in range(len(exp.output_shape))]
    if not isinstance(total, TensorView) or list(total.dims) != kept:
        return None
    less = importer.graph.operators.get(exp.inputs[0])
    if less is None or less.kind != "subtract":
        return None
    x, most = less.inputs
    highest = behind(importer, most, "reshape")
    wanted = tuple(1 if dim == axis else n for dim, n in enumerate(exp.output_shape))
    lead = (1,) * (len(wanted) - len(importer.graph.shapes[most]))
    if highest is None or highest.kind != "reduce_max" or lead + importer.graph.shapes[most] != wanted:
        return None
    if highest.inputs != (x,) or dict(highest.settings)["axis"] != axis:
        return None
    return importer.add("softmax", x, axis=axis)


def is_same_row(importer: Importer, mask: Value, rows: Value, wrapped: Value) -> bool:
    """True for `rows` where they are not negative, otherwise rows + n: JAX's row numbers, counted from the end."""
    below, added = importer.operator(mask), importer.operator(wrapped)
    if below is None or added is None or not isinstance(rows, TensorView) or not importer.is_plain(rows):
        return False
    if (below.kind, added.kind) != ("compare", "add") or dict(below.settings)["relation"] != "less":
        return False
    constants = importer.graph.constants
    if below.inputs[1] not in constants or added.inputs[1] not in constants:
        return False
    zero, count = constants[below.inputs[1]], constants[added.inputs[1]]
    is_whole = zero.dtype.kind == count.dtype.kind == "i"
    return is_whole and not zero.any() and below.inputs[0] == added.inputs[0] == rows.name


def behind(importer: Importer, name: str, *kinds: str) -> Operator | None:
    """The operator whose result is only seen in another way, by operators of these kinds."""
    op = importer.graph.operators.get(name)
    while op is not None and op.kind in kinds:
        op = importer.graph.operators.get(op.inputs[0])
    return op
