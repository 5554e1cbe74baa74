"""What devices on MPI tell each other to meet in a call: who makes which call, and the array itself if it is small.

A letter lies at a fixed place in a device's outgoing buffer and in the buffers of what comes in, so that a call that
is made again finds everything ready: it writes its numbers, and reads the others' where they have arrived.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Sequence
from hashlib import blake2b
from struct import Struct

import numpy as np

from lib.engine.call import Call
from lib.engine.collectives import Array

ROOM = 1024
"""Bytes of a letter, beside what grows with the number of devices."""

_TOP = Struct("<8sq")
"""A digest of the call, and the sender's clock."""

_LENGTH = Struct("<i")


def room(size: int) -> int:
    """Bytes that every letter has among `size` devices: a group of all can be named, and a count for each fits."""
    return ROOM + 12 * size


class Letter:
    """One call of one device: how it is written, and how what the others wrote is read."""

    def __init__(self, call: Call, device: int, out: Array, into: Sequence[Array], content: Array | None) -> None:
        spelt = repr(tuple(call)).encode()
        self.call = call
        self.digest = blake2b(spelt, digest_size=8).digest()
        self.index = call.group.index(device)
        self.out = out.data
        self.others = [into[member].data for member in call.group if member != device]
        self.head = _LENGTH.pack(len(spelt)) + spelt
        start = -(-(_TOP.size + len(self.head)) // 16) * 16
        self.arrays: list[Array] = []
        """What each member brings, in the group's order; none if it does not fit into a letter."""
        if content is not None and start + content.nbytes <= len(out):
            sources = [out if member == device else into[member] for member in call.group]
            self.arrays = [np.ndarray(content.shape, content.dtype, source.data, start) for source in sources]

    def address(self) -> None:
        """Writes the call itself: once, for as long as no other letter is written to the same place."""
        self.out[_TOP.size : _TOP.size + len(self.head)] = self.head

    def date(self, clock: int) -> None:
        _TOP.pack_into(self.out, 0, self.digest, clock)

    def read(self) -> int | None:
        """The latest of the others' clocks; None if one of them makes another call."""
        latest = 0
        for source in self.others:
            digest, clock = _TOP.unpack_from(source)
            if digest != self.digest:
                return None
            if clock > latest:
                latest = clock
        return latest

    def calls(self) -> list[Call]:
        """What each member calls, in the order of this one's group."""
        others = iter(map(_call_in, self.others))
        return [self.call if i == self.index else next(others) for i in range(len(self.call.group))]


def _call_in(letter: memoryview) -> Call:
    (length,) = _LENGTH.unpack_from(letter, _TOP.size)
    start = _TOP.size + _LENGTH.size
    return Call(*literal_eval(letter[start : start + length].tobytes().decode()))
