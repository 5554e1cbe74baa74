"""What comes from one device: headers, and the large arrays that follow them.

Between processes of one host, headers come through a ring, and through MPI only while that is full or not open yet. A
message's number tells which one is next.
"""

from __future__ import annotations

from typing import Any

from mpi4py import MPI
from numpy import zeros

from lib.engine.collectives import Array
from lib.engine.transports.reused_memory import ReusedMemory

from .control import PeerFailedError
from .headers import BLOCK, CLOCK, FILE, HEADER_BYTES, NUMBER, PLACE, SIZE, Form, Header
from .ring import RING_BYTES, Ring
from .shared_blocks import OpenedBlocks
from .shared_memory import NOWHERE, HostMemory

Message = tuple[int, Array]
"""The sender's clock, and the array."""


class Incoming:
    """The messages of `source`, with `tag` and, for the bytes of large arrays, the next one."""

    def __init__(self, comm: Any, source: int, tag: int, memory: ReusedMemory, host: HostMemory) -> None:
        self.comm, self.source, self.tag = comm, source, tag
        self.memory, self.host = memory, host
        self.received = 0
        """How many messages have been taken."""
        self._ring: Ring | None = None
        self._header = Header(zeros(HEADER_BYTES, "u1"))
        """That of a message that comes through MPI."""
        self._request = comm.Recv_init([self._header.buffer, MPI.BYTE], source, tag)
        self._expecting = False
        """The request has been started, and its header has not been read."""
        self._message: Message | None = None
        """The next one, if its header has been read before it was taken."""
        self._body: Any = None
        """What receives its array, which is on its way."""
        self._blocks = OpenedBlocks(host.processes.get(source, 0))

    def take(self) -> Message | None:
        """The next message; None if it is not here."""
        number = self.received + 1
        if self._ring is not None and self._message is None:
            header = self._ring.next(number)
            if header is not None and header.read().fits:
                assert header.content is not None, "its form fits"
                clock, array = header.words[CLOCK], header.content.copy()
                self._ring.pass_on()
                self.received = number
                return clock, array
        if not self.has_come():
            return None
        message, self._message = self._message, None
        self.received = number
        return message

    def has_come(self) -> bool:
        """True if the next message is here. Begins to receive an array whose header is here."""
        if self._message is None and not self._read_header(self.received + 1):
            return False
        if self._body is not None:
            if not self._body.Test():
                return False
            self._body = None
        return True

    def _read_header(self, number: int) -> bool:
        """Looks for the header of a message in the ring, or through MPI."""
        ring = self._ring
        if ring is not None:
            header = ring.next(number)
            if header is not None:
                self._read(header)
                ring.pass_on()
                return True
            if not ring.is_elsewhere(number):
                return False
        header = self._header
        if not self._expecting:
            self._request.Start()
            self._expecting = True
        if not self._request.Test() or header.words[NUMBER] != number:
            return False  # if it is a later one, the next one is in the ring by now
        self._expecting = False
        self._read(header)
        place = header.words[PLACE]
        if place != NOWHERE and ring is None:
            self._ring = Ring(self.host, self.host.place(self.source, place, RING_BYTES))
        return True

    def _read(self, header: Header) -> None:
        form = header.read()
        if header.content is not None:
            array = header.content.copy()
        elif header.words[BLOCK]:
            array = self._in_block(header, form)
        else:
            array = self.memory.empty(form.shape, form.dtype)
            self._body = self.comm.Irecv([as_bytes(array), MPI.BYTE], self.source, self.tag + 1)
        self._message = header.words[CLOCK], array

    def _in_block(self, header: Header, form: Form) -> Array:
        block = (header.words[BLOCK], header.words[FILE], header.words[SIZE])
        try:
            return self._blocks.array(*block, form.shape, form.dtype)
        except FileNotFoundError as why:
            raise PeerFailedError from why

    def free(self) -> None:
        """Frees what MPI holds for requests, except for an array that is on its way."""
        if self._body is not None:
            _abandoned.append((self._body, self._message))
        if self._expecting:
            self._request.Cancel()
            self._request.Wait()
        self._request.Free()


_abandoned: list[tuple[Any, Message | None]] = []
"""Arrays that nobody takes. MPI may write to their memory as long as the process lives."""


def as_bytes(array: Array) -> Array:
    """The elements of a contiguous array, as bytes."""
    return array.reshape(-1).view("u1")
