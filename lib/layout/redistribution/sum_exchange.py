"""Sum exchange: partial sums added up and moved to where they are wanted, at the lower bound.

To add up an element of S summands on S devices and bring the sum to W devices takes S + W - 2 messages if one of the
W holds a summand, otherwise S + W - 1: no device has the sum before S - 1 messages have joined the S holders, and
each further device needs at least one more. Here an owner among the W, if there is one, collects the summands of its
group and sends the sum to the others. All possible owners of an element's box own equal shares of it.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from lib.layout.layouts.device_matrix import Ints
from lib.layout.layouts.pieces import Array, Pieces, check, new_piece
from lib.layout.layouts.tensor_layout import TensorLayout, groups

from .exchange import cells, piece_number, require_same
from .messages import Messages, TensorTransfer

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
