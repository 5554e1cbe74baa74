"""What comes from one device: headers, one of which is always expected, and the large arrays that follow them.

A message's number tells whether it is the next one, because small messages also come through a ring.
"""

from __future__ import annotations

import os
from typing import Any

from mpi4py import MPI
from numpy import zeros

from lib.engine.collectives import Array
from lib.engine.transports.reused_memory import ReusedMemory

from .headers import HEADER_BYTES, Header
from .ring import RING_BYTES, Ring
from .shared_memory import NOWHERE, HostMemory


class Incoming:
    """The messages of `source`, with `tag` and, for the bytes of large arrays, the next one."""

    def __init__(self, comm: Any, source: int, tag: int, memory: ReusedMemory, host: HostMemory) -> None:
        self.comm, self.source, self.tag = comm, source, tag
        self.memory, self.host = memory, host
        self.received = 0
        self._ring: Ring | None = None
        self._wants = False
        self._header = Header(zeros(HEADER_BYTES, "u1"))
        self._request = comm.Recv_init([self._header.buffer, MPI.BYTE], source, tag)
        self._expecting = False
        """The request has been started, and the message that it received has not been taken."""
        self._message: tuple[int, Array] | None = None
        """The clock and the array of the message that has come through MPI; a large one may still be on its way."""
        self._body: Any = None
        """What receives a large array."""

    def has_come(self) -> bool:
        """True if the next message is here."""
        number = self.received + 1
        if self._ring is not None and self._ring.has(number):
            return True
        if self._message is None and not self._has_header():
            return False
        if self._body is not None:
            if not self._body.Test():
                return False
            self._body = None
        return bool(self._header.numbers[0] == number)

    def _has_header(self) -> bool:
        """Receives a header, and the array in it; begins to receive an array that follows it."""
        if not self._expecting:
            self._request.Start()
            self._expecting = True
        if not self._request.Test():
            return False
        clock, place, form = self._header.read()
        if place != NOWHERE and self._ring is None:
            self._ring = Ring(self.host, self.host.place(self.source, place, RING_BYTES))
        if self._header.content is not None:
            self._message = clock, self._header.content
        else:
            array = self.memory.empty(form.shape, form.dtype)
            self._body = self.comm.Irecv([as_bytes(array), MPI.BYTE], self.source, self.tag + 1)
            self._message = clock, array
        return True

    def want(self) -> None:
        """Lets the sender of the next message send it without a copy, if it is a large one: this device receives
        nothing else until `no_longer_wants` or `take`."""
        if self._ring is not None and not self._wants:
            self._wants = True
            self._ring.want(self.received + 1)

    def no_longer_wants(self) -> None:
        """Takes that back; waits for a message that is being sent like that."""
        if self._wants and self._ring is not None:
            self._wants = False
            while not self._ring.no_longer_wants(self.received + 1) and not self.has_come():
                os.sched_yield()

    def take(self) -> tuple[int, Array]:
        """The clock and the array of the next message, which is here."""
        self.received += 1
        if self._wants and self._ring is not None:
            self._wants = False
            self._ring.want(0)
        if self._ring is not None and self._ring.has(self.received):
            return self._ring.read()
        assert self._message is not None and self._body is None, "has_come comes first"
        clock, array = self._message
        self._message, self._expecting = None, False
        return clock, array if self._header.content is None else array.copy()

    def free(self) -> None:
        """Frees what MPI holds for requests, except for an array that is on its way."""
        if self._body is not None:
            _abandoned.append((self._body, self._message))
        if self._expecting and self._message is None:
            self._request.Cancel()
            self._request.Wait()
        self._request.Free()


_abandoned: list[tuple[Any, Any]] = []
"""Arrays that nobody takes. MPI may write to their memory as long as the process lives."""


def as_bytes(array: Array) -> Array:
    """The elements of a contiguous array, as bytes."""
    return array.reshape(-1).view("u1")
