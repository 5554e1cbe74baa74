"""Groups of JAX's primitives that are one operator here, and rows or elements of tensors by number."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from .jax_values import Importer, Known, NoOperatorError, Shape, TensorView, Value
from .operators import Operator


class RowsByNumber:
    """Rows of a table along one dimension, by number: letters of the table, numbers and rows, as in an einsum."""

    def __init__(
        self, importer: Importer, shape: Shape, numbers: Value, window: Any, along: Any, batch: tuple[Any, Any]
    ) -> None:
        if len(along) != 1:
            raise NoOperatorError
        letters, (self.dim,), last = iter("abcdefghijklmnopqrstuvwxyz"), along, len(numbers.shape) - 1
        self.importer, self.shape, self.numbers = importer, shape, importer.tensor(numbers).without([last])
        self.table = [next(letters) for _ in shape]
        shared = {int(place): self.table[dim] for dim, place in zip(*batch)}
        self.at = [shared.get(i) or next(letters) for i in range(last)]
        self.left = [x for dim, x in enumerate(self.table) if dim != self.dim and dim not in batch[0]]
        places, windows = iter(self.at), iter(self.left)
        self.rows = [next(windows if i in window else places) for i in range(last + len(self.left))]
        self.is_batched = bool(batch[0])

    def taken(self, table: str) -> TensorView:
        """The rows with these numbers."""
        if self.is_batched:
            return self._product(self.rows, (self.table, table))
        size, *window = (self.shape[self.table.index(x)] for x in self._dim_first())
        flat = self._arranged(table, self.table, self._dim_first(), (size, prod(window)))
        flat_rows = self.importer.add("gather", flat.name, self.importer.plain(self.numbers))
        parts = self.importer.reshaped(flat_rows.name, (*self.numbers.shape, *window))
        return self._arranged(parts.name, self.at + self.left, self.rows)

    def added(self, rows: str) -> TensorView:
        """Zeros with the rows added to those with these numbers."""
        if self.is_batched:
            return self._product(self.table, (self.rows, rows))
        size, *window = (self.shape[self.table.index(x)] for x in self._dim_first())
        shape = *self.numbers.shape, prod(window)
        flat = self._arranged(rows, self.rows, self.at + self.left, shape)
        summed = self.importer.add("scatter", flat.name, self.importer.plain(self.numbers), size=size)
        parts = self.importer.reshaped(summed.name, (size, *window))
        return self._arranged(parts.name, self._dim_first(), self.table)

    def _dim_first(self) -> list[str]:
        return [self.table[self.dim], *self.left]

    def _arranged(self, name: str, letters: list[str], wanted: list[str], shape: Shape | None = None) -> TensorView:
        order = tuple(letters.index(x) for x in wanted)
        if order != tuple(range(len(order))):
            name = self.importer.add("transpose", name, order=order).name
        return self.importer.reshaped(name, self.importer.graph.shapes[name] if shape is None else shape)

    def _product(self, wanted: list[str], other: tuple[list[str], str]) -> TensorView:
        """With 1 where the place in the table is a row's number, otherwise 0."""
        size, rank = self.shape[self.dim], len(self.at)
        wide = self.importer.add("repeat", self.importer.plain(self.numbers), axis=rank, size=size)
        places = self.importer.tensor(Known(np.arange(size, dtype=np.int32)))
        mask = self.importer.add("compare", wide.name, places.name, relation="equal")
        spec = f"{''.join(other[0])},{''.join(self.at)}{self.table[self.dim]}->{''.join(wanted)}"
        return self.importer.add("einsum", other[1], mask.name, spec=spec)


def gathered(importer: Importer, settings: dict[str, Any], inputs: list[Value]) -> Value:
    """Full rows of a table, one element of each row, or a part whose place is known."""
    table, numbers = inputs
    how, sizes = settings["dimension_numbers"], tuple(settings["slice_sizes"])
    along, batch = tuple(how.collapsed_slice_dims), tuple(how.operand_batching_dims)
    if isinstance(numbers, Known) and len(numbers.shape) == 1 and not batch:
        starts = dict(zip(how.start_index_map, numbers.array.tolist()))
        part = _part(importer, table, [starts.get(dim, 0) for dim in range(len(sizes))], sizes)
        return part.without(along)
    whole = tuple(1 if dim in (*along, *batch) else n for dim, n in enumerate(table.shape))
    dims = along if along == tuple(how.start_index_map) and sizes == whole else ()
    pairs = batch, tuple(how.start_indices_batching_dims)
    return RowsByNumber(importer, table.shape, numbers, how.offset_dims, dims, pairs).taken(importer.plain(table))


def scattered(importer: Importer, settings: dict[str, Any], inputs: list[Value]) -> Value:
    """What `gathered` took, added up where it belongs: its gradient."""
    before, numbers, given = inputs
    how = settings["dimension_numbers"]
    if not isinstance(before, Known) or before.scalar != 0:
        raise NoOperatorError
    along = tuple(how.inserted_window_dims)
    pairs = tuple(how.operand_batching_dims), tuple(how.scatter_indices_batching_dims)
    dims = along if along == tuple(how.scatter_dims_to_operand_dims) else ()
    rows = RowsByNumber(importer, before.shape, numbers, how.update_window_dims, dims, pairs)
    return rows.added(importer.plain(given))


def sliced(importer: Importer, settings: dict[str, Any], inputs: list[Value]) -> Value:
    """A part whose place is known when the function is imported."""
    x, *starts = inputs
    if not all(isinstance(start, Known) and start.scalar is not None for start in starts):
        raise NoOperatorError
    known = [int(start.scalar or 0) for start in starts if isinstance(start, Known)]
    return _part(importer, x, known, settings["slice_sizes"])


def _part(importer: Importer, x: Value, starts: Sequence[int], sizes: Sequence[int]) -> TensorView:
    """A part of these sizes; as in JAX, one that would reach beyond the end starts earlier."""
    part = TensorView.whole(importer.plain(x), x.shape)
    for axis, (start, size) in enumerate(zip(starts, sizes)):
        if size != part.shape[axis]:
            first = int(np.clip(start, 0, part.shape[axis] - size))
            part = importer.add("slice", part.name, axis=axis, start=first, stop=first + int(size))
    return part


def largest(importer: Importer, settings: dict[str, Any], inputs: list[Value]) -> list[Value]:
    """The largest elements of an axis, and their numbers."""
    name, k = importer.plain(inputs[0]), int(settings["k"])
    rank = len(inputs[0].shape)
    axis = settings.get("axis", rank - 1)
    order = tuple({axis: rank - 1, rank - 1: axis}.get(i, i) for i in range(rank))  # its own inverse
    if axis != rank - 1:
        name = importer.add("transpose", name, order=order).name
    results: list[Value] = [importer.add("largest", name, k=k, numbers=numbers) for numbers in (False, True)]
    return (
        results
        if axis == rank - 1
        else [importer.add("transpose", importer.plain(result), order=order) for result in results]
    )


def mean_of(importer: Importer, total: Value, count: Value) -> Value | None:
    """reduce_sum / n, if n is the number of elements along that axis."""
    op = importer.operator(total)
    if op is None or op.kind != "reduce_sum" or not isinstance(count, Known) or not isinstance(total, TensorView):
        return None
    axis = dict(op.settings)["axis"]
    if count.scalar != op.input_shapes[0][axis]:
        return None
    mean = importer.add("reduce_mean", op.inputs[0], axis=axis)
    return TensorView(mean.name, total.shape, total.dims)


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
