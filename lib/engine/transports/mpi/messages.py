"""Messages from one device to another, which a sender hands over without waiting for the receiver.

Every message has a header, which holds the elements of a small array: between processes of one host it goes through a
ring in shared memory, otherwise from a buffer whose persistent request is started again for every message. A large
array is copied, as MPI_Bsend does, because the caller may change it afterwards: on one host to a block of shared memory
that the receiver uses in place; otherwise its bytes follow the header through MPI.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from mpi4py import MPI
from numpy import ascontiguousarray, zeros

from lib.engine.collectives import Array
from lib.engine.transports.reused_memory import ReusedMemory

from .headers import HEADER_BYTES, NUMBER, PLACE, Header
from .incoming import Incoming, Message, as_bytes
from .ring import RING_BYTES, Ring
from .shared_blocks import Block, OwnBlocks
from .shared_memory import NOWHERE, HostMemory

Wait = Callable[[Callable[[], Any], str], None]
"""Waits until a test is true, in a call that a message would name; may end in an error."""


def poll(test: Callable[[], Any], _: str = "") -> None:
    """Polls until `test` is true; for what is already on its way."""
    while not test():
        os.sched_yield()


class Slot(Header):
    """A header, and the persistent request that sends it to one device."""

    __slots__ = ("free", "request")

    def __init__(self, start: Any, to: int, tag: int, free: list[Slot]) -> None:
        super().__init__(zeros(HEADER_BYTES, "u1"))
        self.request = start([self.buffer, MPI.BYTE], to, tag)
        self.free = free
        """Where it belongs when it may be written to."""


class Messages:
    """All messages of one device, to and from the others of `comm`; they use `tag` and the next one."""

    def __init__(self, comm: Any, tag: int, memory: ReusedMemory, host: HostMemory) -> None:
        self.comm, self.tag, self.memory, self.host = comm, tag, memory, host
        self.blocks = OwnBlocks()
        self.sent = [0] * comm.size
        self._rings: dict[int, Ring] = {}
        """By target, of those on this host; as long as there is room."""
        self._places: dict[int, int] = {}
        """By target: the place of its ring in this process's part of the shared memory."""
        self._free: dict[int, list[Slot]] = defaultdict(list)
        """By target."""
        self._free_until_received: dict[int, list[Slot]] = defaultdict(list)
        """The same, of slots whose message leaves only when it is received."""
        self._busy: list[Slot] = []
        self._bodies: list[tuple[Any, Array]] = []
        """Large arrays that are on their way, and what sends them."""
        self._incoming: dict[int, Incoming] = {}
        """By source."""

    def received_from(self, source: int) -> int:
        """How many of its messages have been received."""
        incoming = self._incoming.get(source)
        return 0 if incoming is None else incoming.received

    def send(self, to: int, arr: Array, clock: int, until_received: bool = False) -> None:
        """Sends an array, which the caller may change afterwards. `until_received`: it counts in `unreceived` until
        then."""
        number = self.sent[to] = self.sent[to] + 1
        block = self._copied_to_block(to, arr) if arr.nbytes > HEADER_BYTES else None
        ring = None if until_received else self._rings.get(to)
        header = None if ring is None else ring.write(number, arr, clock, block)
        if header is None:
            header = self._send_header(to, arr, clock, block, until_received)
        if header.content is None and block is None:
            self._send_body(to, self.memory.copy(arr))

    def _copied_to_block(self, to: int, arr: Array) -> Block | None:
        """The block of shared memory that holds a copy of an array; None if there is none for it."""
        block = self.blocks.take(arr.nbytes) if to in self.host.processes else None
        if block is not None:
            self.memory.copy_into(block.lend(arr.shape, arr.dtype), arr)
        return block

    def send_owned(self, to: int, arr: Array) -> None:
        """Sends an array that nobody changes."""
        self.sent[to] += 1
        if self._send_header(to, arr, 0).content is None:
            self._send_body(to, ascontiguousarray(arr))

    def _send_header(
        self, to: int, arr: Array, clock: int, block: Block | None = None, until_received: bool = False
    ) -> Header:
        """Sends a header through MPI."""
        if to not in self._places:
            self._open_ring(to)
        elif to in self._rings:
            self._rings[to].announce_elsewhere(self.sent[to])
        free = (self._free_until_received if until_received else self._free)[to]
        if not free and self._busy:
            self.unreceived()
        if free:
            slot = free.pop()
        else:
            slot = Slot(self.comm.Ssend_init if until_received else self.comm.Send_init, to, self.tag, free)
        slot.write(arr, clock, block)
        slot.words[NUMBER], slot.words[PLACE] = self.sent[to], self._places[to]
        slot.request.Start()
        if slot.request.Test():  # it has usually left already
            free.append(slot)
        else:
            self._busy.append(slot)
        return slot

    def _open_ring(self, to: int) -> None:
        place = self._places[to] = self.host.lend(RING_BYTES) if self.host.sees([to]) else NOWHERE
        if place != NOWHERE:
            self._rings[to] = Ring(self.host, self.host.place(self.host.rank, place, RING_BYTES))

    def _send_body(self, to: int, array: Array) -> None:
        """Begins to send the bytes of an array, which nobody changes until they have left."""
        self._forget_sent()
        self._bodies.append((self.comm.Isend([as_bytes(array), MPI.BYTE], to, self.tag + 1), array))

    def _forget_sent(self) -> bool:
        """Frees the large arrays that have left; True if all have."""
        self._bodies = [(body, array) for body, array in self._bodies if not body.Test()]
        return not self._bodies

    def unreceived(self) -> int:
        """Messages sent with `until_received` that have not been received, and headers of others that have not left."""
        if self._busy:
            busy, self._busy = self._busy, []
            for slot in busy:
                (slot.free if slot.request.Test() else self._busy).append(slot)
        return len(self._busy)

    def _from(self, source: int) -> Incoming:
        incoming = self._incoming.get(source)
        if incoming is None:
            incoming = Incoming(self.comm, source, self.tag, self.memory, self.host)
            self._incoming[source] = incoming
        return incoming

    def has_come(self, source: int) -> bool:
        """True if the next message from `source` is here."""
        return self._from(source).has_come()

    def receive(self, source: int, wait: Wait = poll) -> Message:
        """The clock and the array of the next message from `source`, for which `wait` waits; without it, the message
        must be on its way."""
        incoming = self._incoming.get(source) or self._from(source)
        message = incoming.take()
        if message is None:
            os.sched_yield()  # there may be more devices than cores
            message = incoming.take()
        while message is None:
            wait(incoming.has_come, f"receive({source})")
            message = incoming.take()
        return message

    def finish(self) -> None:
        """Waits until all that was sent has left; every message must have been received."""
        poll(lambda: not self.unreceived() and self._forget_sent())

    def free(self, ended_well: bool) -> None:
        """Frees what MPI holds for requests, except for messages of a failed run that are still on their way, and the
        places of rings."""
        self.unreceived()
        self._forget_sent()
        _abandoned.extend([*self._busy, *self._bodies])
        for slots in (*self._free.values(), *self._free_until_received.values()):
            for slot in slots:
                slot.request.Free()
        for incoming in self._incoming.values():
            incoming.free()
        self.blocks.close()
        for place in self._places.values() if ended_well else ():
            self.host.give_back(place, RING_BYTES)
        for kept in (self._busy, self._free, self._free_until_received, self._incoming, self._rings, self._places):
            kept.clear()


_abandoned: list[Any] = []
"""Messages that nobody will receive. MPI may read their memory as long as the process lives."""
