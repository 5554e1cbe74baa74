"""Operators that rearrange a tensor: other shapes, parts of it, rows of a table, tokens routed to experts."""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from lib.layout.errors import LayoutError
from lib.layout.layouts.checks import require_int, require_ints

from .building import ProgramBuilder
from .operators import in_order, of_reshape


class RearrangingBuilder(ProgramBuilder):
    """A program under construction, with the operators that rearrange."""

    def transpose(self, name: str, x: str, order: Sequence[int]) -> str:
        """Dimensions in another order."""
        shape, order = self._shape(x), require_ints(order, f"{name}: an order is a tuple of dimensions")
        if sorted(order) != list(range(len(shape))):
            raise LayoutError(f"{name}: {order} is not an order of the {len(shape)} dimensions of shape {shape}")
        letters = in_order(len(shape))
        out = tuple(letters[i] for i in order)
        return self.add_labelled(
            name, "transpose", (x,), tuple(shape[i] for i in order), (letters,), out, settings={"order": order}
        )  # fmt: skip

    def reshape(self, name: str, x: str, shape: Sequence[int]) -> str:
        """The same elements in another shape; of dimensions that are merged or divided, the first may be split."""
        before, after = self._shape(x), require_ints(shape, f"{name}: a shape is a tuple of whole numbers")
        if prod(before) != prod(after):
            raise LayoutError(
                f"{name}: shape {before} has {prod(before):,} elements, shape {after} has {prod(after):,}"
            )
        left, right, free = of_reshape(before, after)
        return self.add_labelled(name, "reshape", (x,), after, (left,), right, free)

    def gather(self, name: str, table: str, rows: str) -> str:
        """Rows of a table of shape (v, e), such as an embedding; the row numbers may have any shape."""
        table_shape, rows_shape = self._shape(table), self._shape(rows)
        if len(table_shape) != 2:
            raise LayoutError(f"{name}: a gather takes a two-dimensional table; got {table_shape}")
        letters = in_order(len(rows_shape))
        return self.add_labelled(
            name, "gather", (table, rows), (*rows_shape, table_shape[1]), (("v", "e"), letters), (*letters, "e")
        )

    def repeat(self, name: str, x: str, axis: int, size: int, scale: float = 1.0) -> str:
        """x times `scale`, with a new dimension of `size` equal parts at `axis`; the new dimension may be split."""
        shape = self._shape(x)
        size = require_int(size, f"{name}: the size of a dimension is a whole number")
        dim = self._axis(name, (*shape, size), axis)
        letters = in_order(len(shape))
        wider, out = (*shape[:dim], size, *shape[dim:]), (*letters[:dim], "r", *letters[dim:])
        return self.add_labelled(name, "repeat", (x,), wider, (letters,), out, settings={"axis": dim, "scale": scale})

    def concat(self, name: str, *inputs: str, axis: int) -> str:
        """Tensors one after the other along an axis, which is not split."""
        shapes = [self._shape(x) for x in inputs]
        if not shapes:
            raise LayoutError(f"{name}: a concat takes one tensor or more")
        dim = self._axis(name, shapes[0], axis)
        rest = {(*shape[:dim], *shape[dim + 1 :]) for shape in shapes}
        if len(rest) > 1 or len({len(shape) for shape in shapes}) > 1:
            raise LayoutError(f"{name}: the shapes {', '.join(map(str, shapes))} differ in more than axis {dim}")
        whole = (*shapes[0][:dim], sum(shape[dim] for shape in shapes), *shapes[0][dim + 1 :])
        letters = in_order(len(whole))
        rows = [tuple(f"c{n}" if i == dim else x for i, x in enumerate(letters)) for n in range(len(inputs))]
        return self._along(name, "concat", inputs, whole, rows, letters, dim)

    def slice(self, name: str, x: str, axis: int, start: int, stop: int) -> str:
        """The part of x from `start` to `stop` along an axis, which is not split."""
        shape = self._shape(x)
        dim = self._axis(name, shape, axis)
        start, stop = require_ints((start, stop), f"{name}: a slice starts and stops at whole numbers")
        if not 0 <= start < stop <= shape[dim]:
            raise LayoutError(f"{name}: axis {dim} of shape {shape} has no part from {start} to {stop}")
        return self._resized(name, "slice", x, dim, stop - start, {"start": start, "stop": stop})

    def pad(self, name: str, x: str, axis: int, before: int = 0, after: int = 0) -> str:
        """x with zeros before and after it along an axis, which is not split; readers can split it evenly."""
        shape = self._shape(x)
        dim = self._axis(name, shape, axis)
        before, after = require_ints((before, after), f"{name}: padding is a whole number of zeros on each side")
        if min(before, after) < 0:
            raise LayoutError(f"{name}: padding is a whole number of zeros on each side; got {before} and {after}")
        settings = {"before": before, "after": after}
        return self._resized(name, "pad", x, dim, before + shape[dim] + after, settings)

    def top_k(self, name: str, x: str, k: int) -> str:
        """The k largest elements of the last axis, in their places, with zeros elsewhere; the axis is not split."""
        shape = self._shape(x)
        if not shape or not 1 <= require_int(k, f"{name}: k is a whole number") <= shape[-1]:
            raise LayoutError(f"{name}: there are no {k!r} largest elements in the last axis of shape {shape}")
        letters = in_order(len(shape))
        return self.add_labelled(name, "top_k", (x,), shape, (letters,), letters, letters[:-1], {"k": k})

    def largest(self, name: str, x: str, k: int, numbers: bool = False) -> str:
        """The k largest elements of the last axis in descending order, or their numbers; the axis is not split."""
        shape = self._shape(x)
        if not shape or not 1 <= require_int(k, f"{name}: k is a whole number") <= shape[-1]:
            raise LayoutError(f"{name}: there are no {k!r} largest elements in the last axis of shape {shape}")
        letters = in_order(len(shape))
        row, out = (*letters[:-1], "c0"), (*letters[:-1], "c1")
        settings = {"k": k, "numbers": numbers}
        return self.add_labelled(name, "largest", (x,), (*shape[:-1], k), (row,), out, letters[:-1], settings)

    def route(self, name: str, gates: str, capacity: int, ones: bool = False) -> str:
        """The dispatch table (..., tokens, experts, capacity) of gates (..., tokens, experts), as in GShard.

        Each token goes to its best expert until that has `capacity` tokens, with its gate as the value, or 1 if `ones`.
        Tokens and experts are not split; leading dimensions (groups of tokens) may be split.
        """
        shape = self._shape(gates)
        if len(shape) < 2 or require_int(capacity, f"{name}: a capacity is a whole number of tokens") < 1:
            raise LayoutError(
                f"{name}: gates are (..., tokens, experts), a capacity 1 or more; got {shape}, {capacity}"
            )
        letters = in_order(len(shape))
        settings = {"capacity": capacity, "ones": ones}
        return self.add_labelled(
            name, "route", (gates,), (*shape, capacity), (letters,), (*letters, "z"), letters[:-2], settings
        )  # fmt: skip

    def scatter(self, name: str, x: str, rows: str, size: int) -> str:
        """A table of `size` rows: sums of the vectors of x (..., e), by row number (...). Reverses `gather`."""
        x_shape, rows_shape = self._shape(x), self._shape(rows)
        if x_shape[:-1] != rows_shape or not x_shape:
            raise LayoutError(
                f"{name}: a scatter takes vectors (..., e) and row numbers (...); got {x_shape} and {rows_shape}"
            )
        letters = in_order(len(rows_shape))
        size = require_int(size, f"{name}: the size of a table is a whole number of rows")
        return self.add_labelled(
            name, "scatter", (x, rows), (size, x_shape[-1]), ((*letters, "e"), letters), ("v", "e")
        )

    def _resized(self, name: str, kind: str, x: str, dim: int, size: int, settings: Mapping[str, Any]) -> str:
        shape = self._shape(x)
        letters = in_order(len(shape))
        row = tuple("c0" if i == dim else letter for i, letter in enumerate(letters))
        whole = (*shape[:dim], size, *shape[dim + 1 :])
        return self._along(name, kind, (x,), whole, [row], letters, dim, settings)

    def _along(
        self,
        name: str,
        kind: str,
        inputs: tuple[str, ...],
        whole: tuple[int, ...],
        rows: Sequence[tuple[str, ...]],
        letters: tuple[str, ...],
        dim: int,
        settings: Mapping[str, Any] | None = None,
    ) -> str:
        free = [letter for i, letter in enumerate(letters) if i != dim]
        return self.add_labelled(
            name, kind, inputs, whole, tuple(rows), letters, free, {"axis": dim, **(settings or {})}
        )
