"""Exchange: the minimum-traffic transfer between two layouts without partial sums, with balanced senders.

Device r receives what the target gives it and the source does not; no plan can move less. Only the copies of a
source piece can choose who sends, and two source pieces have no device in common. So the flow problem "least work for
the busiest sender" separates into one problem per piece: the copies of a piece send equal shares of what is needed of
it, to the element.

In uneven splits, padding is moved like elements where both layouts have it, so that all pieces are equal and an
all-gather or all-to-all is a regular one. A dimension that one layout does not split has room for the padding of the
other one (`sides`): it is cut off on arrival and filled in before it is sent. Padding that only one of two splits has
is not moved.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from lib.layout.errors import LayoutError
from lib.layout.layouts.device_matrix import Ints
from lib.layout.layouts.pieces import Array, Pieces, check, new_piece
from lib.layout.layouts.tensor_layout import TensorLayout, parts

from .messages import Messages, TensorTransfer, within

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
    """`least_elements` from each layout to each: sources x targets."""
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
