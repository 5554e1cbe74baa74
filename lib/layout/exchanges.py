"""Moves between two layouts: the fewest bytes as messages, and the steps that collectives can take.

An exchange sends each element once to each device that lacks it, and the holders of a piece send equal shares of it; a
sum exchange also adds up, at its lower bound. Steps are what a library offers: collectives over axes of the Device
Matrix. Both have their traffic before any message exists, because a planner compares thousands of them.

Which steps lead from one layout to another is left to `redistribution`. Rejected: collectives alone, since an
all-gather before a slice moves elements that nobody wants; and choosing any holder as the sender of a piece, since the
busiest device decides how long a move takes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from lib.layout.layouts import (
    Array,
    Axes,
    Box,
    Ints,
    LayoutError,
    Pieces,
    TensorLayout,
    check,
    elements_of,
    groups,
    new_piece,
    padded,
    parts,
    put_elements,
)

# --- Messages of a redistribution: between which devices, and which part of the tensor each of them carries ---


@dataclass(frozen=True, eq=False)
class Messages:
    """Message i carries share[i], of size[i] elements, from sender[i] to receiver[i]."""

    sender: Ints
    receiver: Ints
    share: Ints
    size: Ints
    devices: int

    def count(self, device: Ints, length: int = 0) -> Ints:
        """Elements by device, which is the `sender` or the `receiver` of each message."""
        # bincount sums doubles, which are exact up to 2**53 elements
        return np.bincount(device, weights=self.size, minlength=length or self.devices).astype(np.int64)

    @cached_property
    def table(self) -> Ints:
        """Elements that each device (row) sends to each other (column)."""
        pairs = self.sender * self.devices + self.receiver
        return self.count(pairs, self.devices**2).reshape(self.devices, self.devices)

    @cached_property
    def sends(self) -> list[dict[int, list[int]]]:
        """For each device, by receiver: the shares that it sends."""
        return self._by_partner(self.sender, self.receiver)

    @cached_property
    def receives(self) -> list[dict[int, list[int]]]:
        """For each device, by sender: the shares that it receives."""
        return self._by_partner(self.receiver, self.sender)

    def _by_partner(self, devices: Ints, partners: Ints) -> list[dict[int, list[int]]]:
        shares: list[dict[int, list[int]]] = [{} for _ in range(self.devices)]
        for share, here, there in zip(self.share.tolist(), devices.tolist(), partners.tolist()):
            shares[here].setdefault(there, []).append(share)
        return shares


@dataclass(frozen=True, eq=False)
class TensorTransfer:
    """Share i is elements lo[i] to hi[i], row-major, of the box number cell[i].

    `starts` and `stops` are boxes x dimensions, in coordinates of the whole tensor.
    """

    source: TensorLayout
    target: TensorLayout
    cell: Ints
    lo: Ints
    hi: Ints
    starts: Ints
    stops: Ints

    @property
    def rounds(self) -> tuple[Messages, ...]:
        """The messages, round by round: a round is sent once the earlier rounds have arrived."""
        raise NotImplementedError

    @property
    def sent(self) -> Ints:
        """Elements sent, by device."""
        counts = (messages.count(messages.sender) for messages in self.rounds)
        return sum(counts, np.zeros(self.source.devices, dtype=np.int64))

    @property
    def received(self) -> Ints:
        """Elements received, by device."""
        counts = (messages.count(messages.receiver) for messages in self.rounds)
        return sum(counts, np.zeros(self.source.devices, dtype=np.int64))

    @cached_property
    def origins(self) -> tuple[Ints, Ints]:
        """The first element of each device's old and new piece in the tensor: devices x dimensions, twice."""
        old, new = (
            parts(layout) * np.array(layout.local_shape, dtype=np.int64) for layout in (self.source, self.target)
        )
        return old, new

    def take(self, share: int, device: int, piece: Array) -> Array:
        """The elements of a share, flat, from a device's piece in the source layout."""
        return elements_of(piece, self._box(share, self.origins[0][device]), self.lo[share], self.hi[share])

    def put(self, share: int, device: int, result: Array, elements: Array) -> None:
        """Writes the elements of a share into a device's new piece."""
        put_elements(result, self._box(share, self.origins[1][device]), self.lo[share], self.hi[share], elements)

    def sizes(self, shares: list[int]) -> Ints:
        """The elements of each of these shares."""
        return self.hi[shares] - self.lo[shares]

    def prepare(self) -> None:
        """Computes in advance what devices look up."""
        _ = self.origins, [(messages.sends, messages.receives) for messages in self.rounds]

    def _box(self, share: int, origin: Ints) -> Box:
        return within(self.starts[self.cell[share]], self.stops[self.cell[share]], origin)


def within(start: Ints, stop: Ints, origin: Ints) -> Box:
    """A box of the tensor in coordinates of a piece that starts at `origin`."""
    return tuple(slice(a, b) for a, b in zip((start - origin).tolist(), (stop - origin).tolist()))


# --- Exchange: the minimum-traffic transfer between two layouts without partial sums, with balanced senders ---
#
# Device r receives what the target gives it and the source does not; no plan can move less. Only the copies of a source
# piece can choose who sends, and two source pieces have no device in common. So the flow problem "least work for the
# busiest sender" separates into one problem per piece: the copies of a piece send equal shares of what is needed of it,
# to the element.
#
# In uneven splits, padding is moved like elements where both layouts have it, so that all pieces are equal and an
# all-gather or all-to-all is a regular one. A dimension that one layout does not split has room for the padding of the
# other one (`sides`): it is cut off on arrival and filled in before it is sent. Padding that only one of two splits has
# is not moved.

MAX_CELLS_CACHED = 4096
"""Number of pairs of pieces up to which the boxes of two splits are cached."""


@dataclass(frozen=True, eq=False)
class Exchange(TensorTransfer):
    """A transfer in one round: message i carries share i from sender[i] to receiver[i]."""

    sender: Ints
    receiver: Ints

    @cached_property
    def moves(self) -> Messages:
        """The messages."""
        share, devices = np.arange(len(self.sender)), self.source.devices
        return Messages(self.sender, self.receiver, share, self.hi - self.lo, devices)

    @property
    def rounds(self) -> tuple[Messages, ...]:
        """The only one."""
        return (self.moves,)

    def run(self, pieces: Pieces) -> Pieces:
        """The target's pieces, assembled from the source's."""
        check(pieces, self.source)
        result = {device: self.kept(device, piece) for device, piece in pieces.items()}
        for i, (sender, receiver) in enumerate(zip(self.sender.tolist(), self.receiver.tolist())):
            self.put(i, receiver, result[receiver], self.take(i, sender, pieces[sender]))
        return result

    def kept(self, device: int, piece: Array) -> Array:
        """A device's new piece, with only what it already holds filled in so far."""
        result = new_piece(self.target, piece.dtype)
        old, new = self.origins[0][device], self.origins[1][device]
        start = np.maximum(old, new)
        stop = np.minimum(old + self.source.local_shape, new + self.target.local_shape)
        if (start < stop).all():
            result[within(start, stop, new)] = piece[within(start, stop, old)]
        return result


def exchange(source: TensorLayout, target: TensorLayout) -> Exchange:
    """The balanced exchange that meets the bound.

    Raises:
        LayoutError: the layouts are for different tensors or devices, or one is partial.
    """
    require_same(source, target)
    if source.partial or target.partial:
        raise LayoutError("an exchange moves complete values; reduce the partial sums first")
    from_part, to_part, starts, stops = cells(source.shape, source.splits, target.splits)
    source_piece, target_piece = piece_number(source), piece_number(target)
    receivers = np.argsort(target_piece, kind="stable").reshape(prod(target.splits), -1)[to_part]
    owners = np.argsort(source_piece, kind="stable").reshape(prod(source.splits), -1)
    cell, column = np.nonzero(source_piece[receivers] != from_part[:, None])
    receiver, piece = receivers[cell, column], from_part[cell]
    volume = (stops - starts).prod(axis=1)
    if owners.shape[1] == 1:  # without copies, there is nothing to balance
        sender, lo, hi = owners[piece, 0], np.zeros_like(cell), volume[cell]
    else:
        sender, receiver, cell, lo, hi = _shared(owners, receiver, cell, piece, volume)
    return Exchange(source, target, cell, lo, hi, starts, stops, sender, receiver)


def _shared(owners: Ints, receiver: Ints, cell: Ints, piece: Ints, volume: Ints) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Messages that make the copies of each piece send equal shares: sender, receiver, cell, lo and hi.

    `owners` are the devices with each piece: pieces x copies. Every `receiver` needs a whole `cell`, of size
    `volume`, from a `piece`.
    """
    pieces, copies = owners.shape
    copy = np.empty(owners.size, dtype=np.int64)  # the number of each device among the copies of its piece
    copy[owners] = np.arange(copies)
    # Devices with the same copy number are adjacent, so that a gather stays within its group of devices.
    order = np.argsort((piece * copies + copy[receiver]) * owners.size + receiver, kind="stable")
    cell, receiver, piece = cell[order], receiver[order], piece[order]
    size = volume[cell]

    # Everything needed in one row, piece by piece; the copies of each piece divide their part into equal shares.
    begin = np.cumsum(size) - size
    wanted = np.bincount(piece, weights=size, minlength=pieces).astype(np.int64)
    first = np.cumsum(wanted) - wanted
    share = (first[:, None] + wanted[:, None] * np.arange(copies) // copies).ravel()
    bounds = np.unique(np.concatenate([begin, share, [size.sum()]]))
    left, right = bounds[:-1], bounds[1:]
    demand = np.searchsorted(begin, left, side="right") - 1
    supply = np.searchsorted(share, left, side="right") - 1
    lo = left - begin[demand]
    return owners.ravel()[supply], receiver[demand], cell[demand], lo, lo + right - left


def bound(source: TensorLayout, target: TensorLayout, real: bool = False) -> Ints:
    """The elements that each device needs and does not hold: no redistribution of whole values receives less.

    Padding counts as an exchange moves it; with `real`, it does not count at all.
    """
    require_same(source, target)
    old, new, end = sides(source.shape, source.splits, target.splits, real)
    start = np.maximum(parts(source) * old, parts(target) * new)
    stop = np.minimum((parts(source) + 1) * old, (parts(target) + 1) * new)
    held: Ints = np.maximum(np.minimum(stop, end) - start, 0).prod(axis=1)
    if not target.uneven and not source.uneven:
        return target.elements - held
    needed: Ints = np.maximum(np.minimum(new, end - parts(target) * new), 0).prod(axis=1)
    return needed - held


@lru_cache(maxsize=262144)
def least_elements(source: TensorLayout, target: TensorLayout, real: bool = False) -> int:
    """The bound, summed over the devices."""
    return 0 if source == target else int(bound(source, target, real).sum())


def least_table(sources: Sequence[TensorLayout], targets: Sequence[TensorLayout]) -> NDArray[np.float64]:
    """`least_elements` from each layout to each: sources x targets. One by one, plans take up to 5 times as long."""
    if any(layout.uneven for layout in (*sources, *targets)):
        return np.array([[least_elements(source, target) for target in targets] for source in sources], dtype=float)
    shapes = np.array([target.local_shape for target in targets], dtype=np.int64)[:, None]
    starts = np.stack([parts(target) for target in targets]) * shapes
    table = np.empty((len(sources), len(targets)))
    for row, source in enumerate(sources):
        require_same(source, targets[0])
        start = parts(source) * np.array(source.local_shape, dtype=np.int64)
        both = np.minimum(start + source.local_shape, starts + shapes) - np.maximum(start, starts)
        table[row] = (shapes.prod(axis=-1) - np.maximum(both, 0).prod(axis=-1)).sum(axis=1)
    return table


def require_same(source: TensorLayout, target: TensorLayout) -> None:
    """Refuses layouts of different tensors or different devices, and anything that is not a layout."""
    for what, layout in (("source", source), ("target", target)):
        if not isinstance(layout, TensorLayout):
            raise LayoutError(f"the {what} of a redistribution is a layout, such as mesh_split returns; got {layout!r}")
    if source.shape != target.shape:
        raise LayoutError(f"the source layout is for shape {source.shape}, the target layout for {target.shape}")
    if source.devices != target.devices:
        raise LayoutError(f"the source layout has {source.devices} devices, the target layout {target.devices}")


@lru_cache(maxsize=65536)
def sides(
    shape: tuple[int, ...], mine: tuple[int, ...], yours: tuple[int, ...], real: bool = False
) -> tuple[Ints, Ints, Ints]:
    """For each dimension in `mine` and in `yours` parts: the lengths of a piece in each, and where both end.

    These are the padded pieces, and an unsplit dimension ends where the other layout does. With `real`, all end where
    the tensor does.
    """
    lengths = []
    for size, n, m in zip(shape, mine, yours):
        a, b = -(-size // n), -(-size // m)
        ends = [length * count for length, count in ((a, n), (b, m)) if count > 1 and not real]
        end = min(ends, default=size)
        lengths.append((a if n > 1 else end, b if m > 1 else end, end))
    columns = np.array(lengths, dtype=np.int64).reshape(-1, 3).T
    columns.setflags(write=False)
    return columns[0], columns[1], columns[2]


def piece_number(layout: TensorLayout) -> Ints:
    """The number of the piece that each device holds, row-major."""
    number = np.zeros(layout.devices, dtype=np.int64)
    for column, split in zip(parts(layout).T, layout.splits):
        number = number * split + column
    return number


def cells(
    shape: tuple[int, ...], mine: tuple[int, ...], yours: tuple[int, ...], real: bool = False
) -> tuple[Ints, Ints, Ints, Ints]:
    """The boxes in which source pieces and target pieces overlap; small results are cached."""
    small = prod(mine) * prod(yours) <= MAX_CELLS_CACHED
    return (_remembered_cells if small else _new_cells)(shape, mine, yours, real)


def _new_cells(
    shape: tuple[int, ...], mine: tuple[int, ...], yours: tuple[int, ...], real: bool
) -> tuple[Ints, Ints, Ints, Ints]:
    """The boxes in which source pieces and target pieces overlap: both piece numbers, starts and stops."""
    lengths = zip(mine, yours, *sides(shape, mine, yours, real))
    meetings = [_meetings(*map(int, dimension)) for dimension in lengths]
    counts = [len(overlaps) for overlaps in meetings]
    grid = np.indices(counts).reshape(len(counts), prod(counts))
    chosen = [overlaps[index] for overlaps, index in zip(meetings, grid)]
    source = np.zeros(grid.shape[1], dtype=np.int64)
    target = np.zeros(grid.shape[1], dtype=np.int64)
    for box, n, m in zip(chosen, mine, yours):
        source, target = source * n + box[:, 0], target * m + box[:, 1]
    starts = np.stack([box[:, 2] for box in chosen], axis=1) if chosen else np.zeros((1, 0), dtype=np.int64)
    stops = np.stack([box[:, 3] for box in chosen], axis=1) if chosen else np.zeros((1, 0), dtype=np.int64)
    return source, target, starts, stops


_remembered_cells = lru_cache(maxsize=4096)(_new_cells)


def _meetings(mine: int, yours: int, a: int, b: int, end: int) -> Ints:
    """Overlaps of `mine` parts of length `a` with `yours` of `b`, up to `end`: rows of part, part, start, stop."""
    edges = np.union1d(np.arange(mine) * a, np.arange(yours) * b).astype(np.int64)
    edges = edges[edges < end]
    return np.stack([edges // a, edges // b, edges, np.append(edges[1:], end)], axis=1)


# --- Sum exchange: partial sums added up and moved to where they are wanted, at the lower bound ---
#
# To add up an element of S summands on S devices and bring the sum to W devices takes S + W - 2 messages if one of the
# W holds a summand, otherwise S + W - 1: no device has the sum before S - 1 messages have joined the S holders, and
# each further device needs at least one more. Here an owner among the W, if there is one, collects the summands of its
# group and sends the sum to the others. All possible owners of an element's box own equal shares of it.

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class SumExchange(TensorTransfer):
    """The `owner` of share i adds up the summands of `group[i]`, in this order, and sends the sum to `wanted[i]`."""

    owner: Ints
    group: Ints
    wanted: Ints

    @cached_property
    def summands(self) -> Messages:
        """The messages to the owners."""
        share, column = np.nonzero(self.group != self.owner[:, None])
        return self._round(self.group[share, column], self.owner[share], share)

    @cached_property
    def sums(self) -> Messages:
        """The messages from the owners."""
        share, column = np.nonzero(self.wanted != self.owner[:, None])
        return self._round(self.owner[share], self.wanted[share, column], share)

    def _round(self, sender: Ints, receiver: Ints, share: Ints) -> Messages:
        return Messages(sender, receiver, share, (self.hi - self.lo)[share], self.source.devices)

    @property
    def rounds(self) -> tuple[Messages, ...]:
        """Both in order."""
        return self.summands, self.sums

    @cached_property
    def owned(self) -> list[list[int]]:
        """The shares of each device."""
        owned: list[list[int]] = [[] for _ in range(self.source.devices)]
        for share, owner in enumerate(self.owner.tolist()):
            owned[owner].append(share)
        return owned

    @cached_property
    def keeps(self) -> list[bool]:
        """For each share, whether its owner wants the sum."""
        return [bool(kept) for kept in (self.wanted == self.owner[:, None]).any(axis=1)]

    def prepare(self) -> None:
        """Computes in advance what devices look up."""
        _ = super().prepare(), self.owned, self.keeps

    def add(self, share: int, summands: dict[int, Array]) -> Array:
        """The sum of a share, always in the order of its group, so that it never depends on the order of arrival."""
        return self.source.together(summands[device] for device in self.group[share].tolist())

    def run(self, pieces: Pieces) -> Pieces:
        """The target's pieces, assembled from the source's summands."""
        check(pieces, self.source)
        result = {d: new_piece(self.target, piece.dtype) for d, piece in pieces.items()}
        for share, (group, wanted) in enumerate(zip(self.group.tolist(), self.wanted.tolist())):
            total = self.add(share, {device: self.take(share, device, pieces[device]) for device in group})
            for device in wanted:
                self.put(share, device, result[device], total)
        return result


def sum_exchange(source: TensorLayout, target: TensorLayout) -> SumExchange:
    """The exchange that completes the sums of `source` in the layout `target`, which has none, at the bound."""
    holders, wanted, both, starts, stops = _boxes(source, target)
    possible = both | ~both.any(axis=1, keepdims=True)
    number, of = np.cumsum(possible, axis=1) - 1, possible.sum(axis=1)
    volume = (stops - starts).prod(axis=1)
    row, column = np.nonzero(possible)
    lo = volume[row] * number[row, column] // of[row]
    hi = volume[row] * (number[row, column] + 1) // of[row]
    row, column, lo, hi = (each[lo < hi] for each in (row, column, lo, hi))
    members = np.empty((source.devices, source.summands), dtype=np.int64)
    for group in groups(source, source.partial):
        members[group] = group
    owner = holders[row, column]
    return SumExchange(source, target, row, lo, hi, starts, stops, owner, members[owner], wanted[row])


@lru_cache(maxsize=262144)
def least_sum_elements(source: TensorLayout, target: TensorLayout, real: bool = False) -> int:
    """The fewest elements that complete the sums of `source` in the layout `target`, over all devices; with `real`,
    without padding."""
    _, wanted, both, starts, stops = _boxes(source, target, real)
    volume = (stops - starts).prod(axis=1)
    none_holds = ~both.any(axis=1)
    return int((volume * (source.summands + wanted.shape[1] - 2 + none_holds)).sum())


def _boxes(source: TensorLayout, target: TensorLayout, real: bool = False) -> tuple[Ints, Ints, Bools, Ints, Ints]:
    """Every overlap of a source and a target piece: its holders, who wants it, which holders want it, its box."""
    require_same(source, target)
    from_part, to_part, starts, stops = cells(source.shape, source.splits, target.splits, real)
    source_piece, target_piece = piece_number(source), piece_number(target)
    holders = np.argsort(source_piece, kind="stable").reshape(prod(source.splits), -1)[from_part]
    wanted = np.argsort(target_piece, kind="stable").reshape(prod(target.splits), -1)[to_part]
    return holders, wanted, target_piece[holders] == to_part[:, None], starts, stops


# --- Steps of a redistribution: the name of each, its traffic, and its execution on numpy ---
#
# Collectives send as many bytes as the best algorithms (Thakur, Rabenseifner, Gropp 2005, "Optimization of Collective
# Communication Operations in MPICH"). With g devices and pieces of S bytes before a reduction or after a gather, that
# is (g-1)/g S for reduce-scatter, all-gather and all-to-all, and twice that for an all-reduce.

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
