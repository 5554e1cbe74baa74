"""Messages from one device to another, which a sender hands over without waiting for the receiver.

A small array is sent in its header: between processes of one host through a ring in shared memory, otherwise in a
buffer whose persistent request is started again for every message. A large array follows its header. `send` does not
wait until it is received, and the caller may change the array afterwards, so it is copied, as MPI_Bsend does; but a
receiver on the same host that waits for it, or begins to in the time of that copy, gets it without one.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from time import perf_counter
from typing import Any

from mpi4py import MPI
from numpy import ascontiguousarray, zeros

from lib.engine.collectives import Array
from lib.engine.transports.reused_memory import ReusedMemory

from .headers import HEADER_BYTES, Header
from .incoming import Incoming, as_bytes
from .ring import RING_BYTES, Ring
from .shared_memory import NOWHERE, HostMemory

MIN_DIRECT_BYTES = 1 << 20
"""Smaller arrays are copied sooner than a receiver answers."""

COPY_SECONDS_PER_BYTE = 0.5e-9
"""Seconds in which a byte is copied to new memory, about. Who waits as long for the chance not to copy never loses more
than it could win (the "ski rental" rule)."""

Wait = Callable[[Callable[[], Any], str], None]
"""Waits until a test is true, in a call that a message would name; may end in an error."""


def poll(test: Callable[[], Any], _: str = "") -> None:
    """Waits for what is on its way."""
    while not test():
        os.sched_yield()


class Slot(Header):
    """A header, the persistent request that sends it to one device, and the array that follows it."""

    __slots__ = ("body", "free", "request")

    def __init__(self, start: Any, to: int, tag: int, free: list[Slot]) -> None:
        super().__init__(zeros(HEADER_BYTES, "u1"))
        self.request = start([self.buffer, MPI.BYTE], to, tag)
        self.body: tuple[Any, Array] | None = None
        self.free = free
        """Where it belongs when it may be written to."""

    def has_left(self) -> bool:
        if not self.request.Test() or (self.body is not None and not self.body[0].Test()):
            return False
        self.body = None
        return True


class Messages:
    """All messages of one device, to and from the others of `comm`; they use `tag` and the next one."""

    def __init__(self, comm: Any, tag: int, memory: ReusedMemory, host: HostMemory) -> None:
        self.comm, self.tag, self.memory, self.host = comm, tag, memory, host
        self.sent = [0] * comm.size
        self._rings: dict[int, Ring | None] = {}
        """By target; None if it is on another host, or there is no room."""
        self._places: dict[int, int] = {}
        """Of the rings, in this process's part of the shared memory."""
        self._free: dict[int, list[Slot]] = defaultdict(list)
        """By target."""
        self._free_until_received: dict[int, list[Slot]] = defaultdict(list)
        """The same, of slots whose message leaves only when it is received."""
        self._busy: list[Slot] = []
        self._incoming: dict[int, Incoming] = {}
        """By source."""

    def received_from(self, source: int) -> int:
        """How many of its messages have been received."""
        incoming = self._incoming.get(source)
        return 0 if incoming is None else incoming.received

    def send(self, to: int, arr: Array, clock: int, wait: Wait) -> None:
        """Sends an array, which the caller may change afterwards."""
        number = self.sent[to] = self.sent[to] + 1
        ring = self._rings.get(to)
        if ring is not None and ring.write(number, arr, clock):
            return
        wanted = ring is not None and arr.nbytes >= MIN_DIRECT_BYTES and self._is_wanted(ring, number, arr.nbytes)
        slot = self._start(to, arr, clock, until_received=False)
        if slot.content is not None:
            self._keep_until_it_has_left(slot)
        elif wanted:
            self._send_body(slot, ascontiguousarray(arr), to)
            wait(lambda: self._has_left(slot), f"send({to})")
            self._want_nothing()
            self.unreceived()
        else:
            self._send_body(slot, self.memory.copy(arr), to)

    def send_owned(self, to: int, arr: Array) -> None:
        """Sends an array that nobody changes."""
        self.sent[to] += 1
        slot = self._start(to, arr, 0, until_received=False)
        if slot.content is not None:
            self._keep_until_it_has_left(slot)
        else:
            self._send_body(slot, ascontiguousarray(arr), to)

    def send_counted(self, to: int, arr: Array, clock: int) -> None:
        """Sends an array, which the caller may change afterwards; it counts in `unreceived` until it is received."""
        self.sent[to] += 1
        slot = self._start(to, arr, clock, until_received=True)
        if slot.content is not None:
            self._busy.append(slot)
        else:
            self._send_body(slot, self.memory.copy(arr), to)

    def _start(self, to: int, arr: Array, clock: int, until_received: bool) -> Slot:
        """Sends a header, and with it a small array."""
        if to not in self._rings:
            self._open_ring(to)
        free = (self._free_until_received if until_received else self._free)[to]
        if not free and self._busy:
            self.unreceived()
        if free:
            slot = free.pop()
        else:
            slot = Slot(self.comm.Ssend_init if until_received else self.comm.Send_init, to, self.tag, free)
        slot.takes(arr)
        slot.write(arr, clock, self._places[to])
        slot.numbers[0] = self.sent[to]
        slot.request.Start()
        return slot

    def _open_ring(self, to: int) -> None:
        place = self.host.lend(RING_BYTES) if self.host.sees([to]) else NOWHERE
        self._places[to] = place
        self._rings[to] = (
            None if place == NOWHERE else Ring(self.host, self.host.place(self.host.rank, place, RING_BYTES))
        )

    def _keep_until_it_has_left(self, slot: Slot) -> None:
        if slot.request.Test():  # a small message has usually left already
            slot.free.append(slot)
        else:
            self._busy.append(slot)

    def _is_wanted(self, ring: Ring, number: int, nbytes: int) -> bool:
        """True if the receiver waits for a message, or begins to before it could have been copied. This device takes
        what others send meanwhile, so that devices that send to each other need not copy either."""
        until = perf_counter() + nbytes * COPY_SECONDS_PER_BYTE
        while not ring.claim(number):
            if perf_counter() > until:
                self._want_nothing()
                return False
            for incoming in self._incoming.values():
                incoming.want()
            self._take()
            os.sched_yield()
        return True

    def _take(self) -> None:
        """Receives what has come: headers, and the arrays that follow them."""
        for incoming in self._incoming.values():
            incoming.has_come()

    def _has_left(self, slot: Slot) -> bool:
        self._take()
        return slot.has_left()

    def _want_nothing(self) -> None:
        for incoming in self._incoming.values():
            incoming.no_longer_wants()

    def _send_body(self, slot: Slot, array: Array, to: int) -> None:
        slot.body = self.comm.Isend([as_bytes(array), MPI.BYTE], to, self.tag + 1), array
        self._busy.append(slot)

    def unreceived(self) -> int:
        """Messages of `send_counted` that have not been received, and others that have not left."""
        if self._busy:
            busy, self._busy = self._busy, []
            for slot in busy:
                (slot.free if slot.has_left() else self._busy).append(slot)
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

    def receive(self, source: int, wait: Wait = poll) -> tuple[int, Array]:
        """The clock and the array of the next message from `source`, for which `wait` waits; without it, the message
        must be on its way."""
        incoming = self._incoming.get(source) or self._from(source)
        if not incoming.has_come():
            incoming.want()
            wait(incoming.has_come, f"receive({source})")
        return incoming.take()

    def finish(self) -> None:
        """Waits until all that was sent has left; every message must have been received."""
        poll(lambda: not self.unreceived())

    def free(self, ended_well: bool) -> None:
        """Frees what MPI holds for requests, except for messages of a failed run that are still on their way, and the
        places of rings."""
        if self.unreceived():
            _abandoned.extend(self._busy)
        for slots in (*self._free.values(), *self._free_until_received.values()):
            for slot in slots:
                slot.request.Free()
        for incoming in self._incoming.values():
            incoming.free()
        for place in self._places.values() if ended_well else ():
            self.host.give_back(place, RING_BYTES)
        for kept in (self._busy, self._free, self._free_until_received, self._incoming, self._rings, self._places):
            kept.clear()


_abandoned: list[Slot] = []
"""Messages that nobody will receive. MPI may read their memory as long as the process lives."""
