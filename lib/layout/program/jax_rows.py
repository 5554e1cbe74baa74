"""Rows and elements of JAX's tensors by number: gathers, the sums that reverse them, and parts at a known place.

One element of each row, as of `take_along_axis`, is a sum over the row of what stands where its number is. Such a sum
may be split, as the cross-entropy of a vocabulary that several devices share.
"""

from typing import Any

import numpy as np

from lib.layout.errors import LayoutError

from .jax_values import Importer, Known, TensorView, Value


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
            "only whole rows of a two-dimensional table can be taken, as table[rows], or one element of each row, as "
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
        raise LayoutError("only whole rows of a two-dimensional table can be added up, or one element of each row")
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
