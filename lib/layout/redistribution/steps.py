"""Steps of a redistribution: the name of each, its traffic, and its execution on numpy.

Collectives send as many bytes as the best algorithms (Thakur, Rabenseifner, Gropp 2005, "Optimization of
Collective Communication Operations in MPICH"). With g devices and pieces of S bytes before a reduction or after
a gather, that is (g-1)/g S for reduce-scatter, all-gather and all-to-all, and twice that for an all-reduce.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod

import numpy as np

from lib.layout.layouts.device_matrix import Ints
from lib.layout.layouts.pieces import Box, Pieces, check, padded
from lib.layout.layouts.tensor_layout import Axes, TensorLayout, groups, parts

from .exchange import Exchange, exchange, least_elements, sides
from .sum_exchange import SumExchange, least_sum_elements, sum_exchange

REDUCING = ("reduce-scatter", "all-reduce")
"""Collectives that add up summands. Axes that are partial in the target stay partial."""
SUM_EXCHANGE = "sum exchange"
"""The step that adds up all summands and moves the sums at the same time; all others move values unchanged."""


@dataclass(frozen=True)
class Step:
    """A step from `source` to `target`, by the operation called `name`."""

    name: str
    source: TensorLayout
    target: TensorLayout

    @property
    def reduced(self) -> Axes:
        """The axes along which summands are added up."""
        return _without(self.source.partial, self.target.partial)

    @cached_property
    def exchange(self) -> Exchange:
        """The messages of a step that moves values unchanged; summands count as a first dimension."""
        return exchange(lifted(self.source), lifted(self.target))

    @cached_property
    def sum_exchange(self) -> SumExchange:
        """The messages of a step of that name."""
        return sum_exchange(self.source, self.target)

    @property
    def messages(self) -> Exchange | SumExchange:
        """The messages of a step that is not a reducing collective."""
        return self.sum_exchange if self.name == SUM_EXCHANGE else self.exchange

    def group(self, device: int) -> tuple[int, ...]:
        """The devices that make this collective together with this device, in the order in which sums are added up."""
        if self.name in REDUCING:
            return self._groups[device]
        return tuple(sorted({device, *self.exchange.moves.receives[device]}))

    def meeting(self, holder: int, receiver: int, of_receiver: bool = False) -> Box:
        """What the piece of one device has in common with the new piece of another, in coordinates of the first one, or
        of the new one. It may reach beyond that in a dimension where only the other one has padding.
        """
        box = []
        lengths = zip(*(side.tolist() for side in sides(self.source.shape, self.source.splits, self.target.splits)))
        for (old, new, end), i, j in zip(lengths, self.source.part(holder), self.target.part(receiver)):
            start, stop = max(i * old, j * new), min((i + 1) * old, (j + 1) * new, end)
            origin = j * new if of_receiver else i * old
            box.append(slice(start - origin, stop - origin))
        return tuple(box)

    def prepare(self) -> None:
        """Computes in advance the tables that devices look up during this step."""
        _ = sides(self.source.shape, self.source.splits, self.target.splits)
        if self.name in REDUCING:
            _ = self._groups, parts(self.source), parts(self.target)
        else:
            self.messages.prepare()

    @cached_property
    def _groups(self) -> dict[int, tuple[int, ...]]:
        return {device: tuple(group) for group in groups(self.source, self.reduced) for device in group}

    @cached_property
    def sent(self) -> Ints:
        """Elements that each device sends."""
        return self.traffic().sum(axis=1) if self.name in REDUCING else self.messages.sent

    @cached_property
    def received(self) -> Ints:
        """Elements that each device receives."""
        return self.traffic().sum(axis=0) if self.name in REDUCING else self.messages.received

    @property
    def total(self) -> int:
        """Elements moved in total, without creating the messages."""
        if self.name == SUM_EXCHANGE:
            return least_sum_elements(self.source, self.target)
        if self.name not in REDUCING:
            return least_elements(lifted(self.source), lifted(self.target))
        sizes = self.source.matrix.shape
        g = prod(sizes[axis] for axis in self.reduced)
        if self.name == "all-reduce":
            return 2 * (g - 1) * self.source.elements * (self.source.devices // g)
        return (g - 1) * self.target.elements * self.source.devices

    def traffic(self) -> Ints:
        """Elements that each device (row) sends to each other (column); for a reduction, as its bytes are counted."""
        table = np.zeros((self.source.devices, self.source.devices), dtype=np.int64)
        if self.name not in REDUCING:
            return sum((messages.table for messages in self.messages.rounds), table)
        size = self.source.elements
        for group in groups(self.source, self.reduced):
            n = len(group)
            shares = np.diff((size if self.name == "all-reduce" else self.target.elements * n) * np.arange(n + 1) // n)
            pairs = shares[None, :] + (shares[:, None] if self.name == "all-reduce" else 0)
            table[np.ix_(group, group)] = pairs * ~np.eye(n, dtype=bool)
        return table

    def run(self, pieces: Pieces) -> Pieces:
        """The target's pieces, computed from the source's."""
        check(pieces, self.source)
        if self.name in REDUCING:
            return self._reduce(pieces)
        if self.name == SUM_EXCHANGE:
            return self.sum_exchange.run(pieces)
        if not self.source.partial:
            return self.exchange.run(pieces)
        moved = self.exchange.run({device: piece[None] for device, piece in pieces.items()})
        return {device: piece[0] for device, piece in moved.items()}

    def _reduce(self, pieces: Pieces) -> Pieces:
        result: Pieces = {}
        for group in groups(self.source, self.reduced):
            total = self.source.together(pieces[device] for device in group)
            for device in group:
                kept = total[self.meeting(device, device)]
                result[device] = np.asarray(padded(kept, self.target.local_shape), order="C")
        return result

    def __str__(self) -> str:
        return f"{self.name} {self.source} to {self.target}"


@lru_cache(maxsize=65536)
def lifted(layout: TensorLayout) -> TensorLayout:
    """A partial layout, as a layout of the stack of its summands: a first dimension split over the partial axes."""
    if not layout.partial:
        return layout
    return TensorLayout((layout.summands, *layout.shape), layout.matrix, (layout.partial, *layout.tensor_map))


def reductions(source: TensorLayout, axes: Axes, uneven: bool = False) -> list[tuple[Step, ...]]:
    """Every way to add up summands along `axes`: each axis is scattered over a dimension or reduced everywhere.

    Scattered axes split their dimension further, at its fine end; all-reduces come last, when pieces are small. Only if
    `uneven`, an unsplit dimension is scattered in parts with padding.
    """
    ways = []
    dims = len(source.shape)
    for number in range((dims + 1) ** len(axes)):
        # The digits of the number, one per axis: a dimension, or `dims` for an all-reduce.
        choice = [number // (dims + 1) ** i % (dims + 1) for i in range(len(axes))]
        chosen = [tuple(axis for axis, digit in zip(axes, choice) if digit == dim) for dim in range(dims + 1)]
        way = _reduction(source, chosen[:dims], chosen[dims], uneven)
        if way is not None:
            ways.append(way)
    return ways


def _reduction(source: TensorLayout, scattered: list[Axes], reduced: Axes, uneven: bool) -> tuple[Step, ...] | None:
    """Reduce-scatters over the axes given for each dimension, then an all-reduce; None if a piece cannot be divided."""
    steps: list[Step] = []
    layout = source
    for dim, axes in enumerate(scattered):
        if not axes:
            continue
        after = with_axes(layout, {dim: layout.tensor_map[dim] + axes}, _without(layout.partial, axes))
        if not (divides(layout, after, dim) or (uneven and layout.splits[dim] == 1)):
            return None
        steps.append(Step("reduce-scatter", layout, after))
        layout = after
    if reduced:
        left = _without(layout.partial, reduced)
        steps.append(Step("all-reduce", layout, replace(layout, partial=left)))
    return tuple(steps)


def divides(coarse: TensorLayout, fine: TensorLayout, dim: int) -> bool:
    """True if the pieces of one layout are cut into equal pieces of the other along a dimension, padding included."""
    return fine.padded_shape[dim] == coarse.padded_shape[dim] and fine.splits[dim] % coarse.splits[dim] == 0


def with_axes(layout: TensorLayout, changes: Mapping[int, Axes], partial: Axes | None = None) -> TensorLayout:
    """A layout with some dimensions split over other axes, and perhaps other partial axes."""
    tensor_map = tuple(changes.get(dim, axes) for dim, axes in enumerate(layout.tensor_map))
    return replace(layout, tensor_map=tensor_map, partial=layout.partial if partial is None else partial)


def _without(axes: Axes, gone: Axes) -> Axes:
    return tuple(axis for axis in axes if axis not in gone)


def steps_with_padding(here: TensorLayout, goal: TensorLayout) -> Iterator[tuple[str, TensorLayout, int]]:
    """The name of each such step, the layout after it, and the elements that it moves in total."""
    options = [
        option
        for dim in range(len(here.shape))
        for option in (*_to_whole(here, goal, dim), *_to_parts(here, goal, dim))
    ]
    for name, there in options:
        yield name, there, Step(name, here, there).total


def _to_whole(here: TensorLayout, goal: TensorLayout, dim: int) -> Iterator[tuple[str, TensorLayout]]:
    """A dimension gathered, or its axes moved to another dimension, one of the two being uneven."""
    axes, is_uneven = here.tensor_map[dim], here.padded_shape[dim] != here.shape[dim]
    if is_uneven:
        yield "all-gather", with_axes(here, {dim: ()})
    for other, wanted in enumerate(_wanted(here, goal)):
        if axes and other != dim:
            after = with_axes(here, {dim: (), other: here.tensor_map[other] + axes})
            fits = divides(here, after, other)
            if (fits and is_uneven) or (not fits and here.splits[other] == 1 and wanted == axes):
                yield "all-to-all", after


def _to_parts(here: TensorLayout, goal: TensorLayout, dim: int) -> Iterator[tuple[str, TensorLayout]]:
    """An unsplit dimension split as in the goal, unevenly: from copies, or from summands."""
    axes = _wanted(here, goal)[dim]
    if here.tensor_map[dim] or not axes or goal.padded_shape[dim] == goal.shape[dim]:
        return
    used = {axis for entry in (*here.tensor_map, here.partial) for axis in entry}
    if not used & set(axes):
        yield "slice", with_axes(here, {dim: axes})
    elif set(axes) <= set(here.partial):
        yield "reduce-scatter", with_axes(here, {dim: axes}, tuple(axis for axis in here.partial if axis not in axes))


def _wanted(here: TensorLayout, goal: TensorLayout) -> tuple[tuple[int, ...], ...]:
    return goal.tensor_map if goal.matrix == here.matrix else ((),) * len(here.shape)


__all__ = ["steps_with_padding"]
