"""MPI rendezvous header: describes the collective; small payloads travel inline.

All members of a group have a row in a table, which is exchanged or shared (see `meeting`). A header has a fixed place
in these rows, so that a repeated call finds everything prepared: it only writes its clock, and compares digests and
clocks of the others with its own.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable
from hashlib import blake2b
from struct import Struct

import numpy as np

from lib.engine.call import CollectiveCall
from lib.engine.collectives import COLLECTIVES, Array
from lib.engine.prepared import prepared_result

CALL_BYTES = 1024
"""Bytes of a handshake, without the part that grows with the number of devices."""

_DIGEST_AND_CLOCK = Struct("<8sq")
"""A digest of the call, and the sender's clock."""

_CALL_LENGTH = Struct("<i")


PLACE_BYTES = 8
"""The end of a row, in which a group's first member names the place of shared tables."""


def row_bytes(size: int) -> int:
    """Bytes of every row among `size` devices: enough to name a group of all devices, and one count per device. A
    multiple of a cache line, so that the arrays in all rows of a table are aligned, and no two members write to
    the same cache line."""
    return -(-(CALL_BYTES + 12 * size + PLACE_BYTES) // 64) * 64


class Handshake:
    """One call of the device at `index` of a group: writes it to its row of the table, and reads the others' rows.

    `content` is an example of the array that each member sends with it, or None if it is always sent separately.
    """

    def __init__(self, call: CollectiveCall, index: int, rows: Array, content: Array | None) -> None:
        spelt = repr(tuple(call)).encode()
        self.call = call
        self.index = index
        self.digest = blake2b(spelt, digest_size=8).digest()
        self.clock = -1
        self.head = b""
        self.row = rows[index].data
        self.rows = rows
        self.heads = rows[:, : _DIGEST_AND_CLOCK.size]
        self.packed_call = _CALL_LENGTH.pack(len(spelt)) + spelt
        start = -(-(_DIGEST_AND_CLOCK.size + len(self.packed_call)) // 16) * 16
        self.parts: Array | None = None
        """The arrays of all members, in the group's order, inside the rows; None if they do not fit."""
        self.mine: Array | None = None
        """That of this device."""
        self.result: Callable[[], Array] | None = None
        """Returns the result of a collective whose arrays are in the rows."""
        if content is not None and start + content.nbytes <= rows.shape[1] - PLACE_BYTES:
            strides = np.ndarray(content.shape, content.dtype, self.row, start).strides
            shape, strides = (len(rows), *content.shape), (rows.shape[1], *strides)
            self.parts = np.ndarray(shape, content.dtype, rows.data, start, strides)
            self.mine = self.parts[index, ...]
            if call.name in COLLECTIVES:
                self.result = prepared_result(call, self.parts, index)

    def write_call(self) -> None:
        """Writes the call itself: once, until another handshake is written to the same row."""
        self.row[_DIGEST_AND_CLOCK.size : _DIGEST_AND_CLOCK.size + len(self.packed_call)] = self.packed_call
        self.clock = -1

    def write_clock(self, clock: int) -> None:
        """Writes the digest of the call and this device's clock, for every meeting."""
        if clock != self.clock:
            self.clock = clock
            self.head = self.row[: _DIGEST_AND_CLOCK.size] = _DIGEST_AND_CLOCK.pack(self.digest, clock)

    def latest_clock(self) -> int | None:
        """The latest of all clocks; None if one of the others makes a different call."""
        if self.heads.tobytes() == self.head * len(self.rows):
            return self.clock
        latest = 0
        for row in self.rows:
            digest, clock = _DIGEST_AND_CLOCK.unpack_from(row)
            if digest != self.digest:
                return None
            if clock > latest:
                latest = clock
        return latest

    def calls(self) -> list[CollectiveCall]:
        """The call of each member, in the order of this one's group; decoded for a message."""
        return [self.call if i == self.index else _read_call(row.data) for i, row in enumerate(self.rows)]


def _read_call(header: memoryview) -> CollectiveCall:
    (length,) = _CALL_LENGTH.unpack_from(header, _DIGEST_AND_CLOCK.size)
    start = _DIGEST_AND_CLOCK.size + _CALL_LENGTH.size
    return CollectiveCall(*literal_eval(header[start : start + length].tobytes().decode()))
