"""Messages of a redistribution: between which devices, and which part of the tensor each of them carries."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lib.layout.layouts.device_matrix import Ints
from lib.layout.layouts.pieces import Array, Box, elements_of, put_elements
from lib.layout.layouts.tensor_layout import TensorLayout, parts


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
