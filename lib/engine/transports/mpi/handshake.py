"""MPI rendezvous header: describes the collective; small payloads travel inline.

A header has a fixed place in a device's send buffer and in its receive buffers, so that a repeated call finds
everything prepared: it only writes its clock, and reads digests and clocks of the others where they have arrived.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Sequence
from hashlib import blake2b
from struct import Struct

import numpy as np

from lib.engine.call import CollectiveCall
from lib.engine.collectives import Array

CALL_BYTES = 1024
"""Bytes of a handshake, without the part that grows with the number of devices."""

_DIGEST_AND_CLOCK = Struct("<8sq")
"""A digest of the call, and the sender's clock."""

_CALL_LENGTH = Struct("<i")


def buffer_bytes(size: int) -> int:
    """Bytes of every handshake among `size` devices: enough to name a group of all devices, and one count per
    device."""
    return CALL_BYTES + 12 * size


class Handshake:
    """One call of one device: writes it to the send buffer `out`, and reads what the others wrote from `into`.

    `content` is an example of the array that each member sends with it, or None if it is always sent separately.
    """

    def __init__(
        self, call: CollectiveCall, device: int, out: Array, into: Sequence[Array], content: Array | None
    ) -> None:
        spelt = repr(tuple(call)).encode()
        self.call = call
        self.digest = blake2b(spelt, digest_size=8).digest()
        self.index = call.group.index(device)
        self.out = out.data
        self.others = [into[member].data for member in call.group if member != device]
        self.packed_call = _CALL_LENGTH.pack(len(spelt)) + spelt
        start = -(-(_DIGEST_AND_CLOCK.size + len(self.packed_call)) // 16) * 16
        self.arrays: list[Array] = []
        """The payload of each member, in the group's order, inside the buffers; empty if it does not fit."""
        if content is not None and start + content.nbytes <= len(out):
            sources = [out if member == device else into[member] for member in call.group]
            self.arrays = [np.ndarray(content.shape, content.dtype, source.data, start) for source in sources]

    def write_call(self) -> None:
        """Writes the call itself: once, until another handshake is written to the same buffer."""
        self.out[_DIGEST_AND_CLOCK.size : _DIGEST_AND_CLOCK.size + len(self.packed_call)] = self.packed_call

    def write_clock(self, clock: int) -> None:
        """Writes the digest of the call and this device's clock, for every meeting."""
        _DIGEST_AND_CLOCK.pack_into(self.out, 0, self.digest, clock)

    def latest_clock(self) -> int | None:
        """The latest of the others' clocks; None if one of them makes a different call."""
        latest = 0
        for source in self.others:
            digest, clock = _DIGEST_AND_CLOCK.unpack_from(source)
            if digest != self.digest:
                return None
            if clock > latest:
                latest = clock
        return latest

    def calls(self) -> list[CollectiveCall]:
        """The call of each member, in the order of this one's group; decoded for a message."""
        others = iter(map(_read_call, self.others))
        return [self.call if i == self.index else next(others) for i in range(len(self.call.group))]


def _read_call(header: memoryview) -> CollectiveCall:
    (length,) = _CALL_LENGTH.unpack_from(header, _DIGEST_AND_CLOCK.size)
    start = _DIGEST_AND_CLOCK.size + _CALL_LENGTH.size
    return CollectiveCall(*literal_eval(header[start : start + length].tobytes().decode()))
