"""Messages from one device to another: a header with shape, dtype and clock, and the elements of a small array; the
bytes of a large one follow.

A small message is written into a buffer whose persistent request is started again for every message. A large one is
copied once, as MPI_Bsend does, because `send` returns before the array has left, and the caller may change it then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache
from math import prod
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from mpi4py import MPI
from numpy import ascontiguousarray, ndarray, zeros

from lib.engine.collectives import Array
from lib.engine.transports.reused_memory import ReusedMemory

SLOT_BYTES = 1024
"""Bytes of a header together with a small array."""

_CLOCK_AND_LENGTH = Struct("<qi")
"""The sender's clock, and the length of the description."""


class Form(NamedTuple):
    """A kind of array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    description: bytes
    """In a header: numpy's short dtype and the shape."""
    start: int
    """Where the elements begin in a header's buffer."""
    fits: bool
    """They are in the header."""


@lru_cache(maxsize=4096)
def form_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Form:
    description = " ".join([dtype.str, *map(str, shape)]).encode()
    start = -(-(_CLOCK_AND_LENGTH.size + len(description)) // 16) * 16
    return Form(shape, dtype, description, start, start + prod(shape) * dtype.itemsize <= SLOT_BYTES)


class Header:
    """A buffer for a header, whose last form is kept: the next message is often of the same."""

    __slots__ = ("buffer", "bytes", "content", "form")

    def __init__(self) -> None:
        self.buffer = zeros(SLOT_BYTES, np.uint8)
        self.bytes = self.buffer.data
        self.form: Form | None = None
        self.content: Array | None = None
        """The place of a small array of this form."""

    def set_form(self, form: Form) -> None:
        self.form = form
        self.content = ndarray(form.shape, form.dtype, self.bytes, form.start) if form.fits else None

    def write(self, arr: Array, clock: int) -> None:
        """Writes a message's clock, its form if it is another one than before, and its elements if they fit."""
        form = self.form
        if form is None or form.shape != arr.shape or form.dtype != arr.dtype:
            form = form_of(arr.shape, arr.dtype)
            self.set_form(form)
            self.bytes[_CLOCK_AND_LENGTH.size : _CLOCK_AND_LENGTH.size + len(form.description)] = form.description
        _CLOCK_AND_LENGTH.pack_into(self.bytes, 0, clock, len(form.description))
        if self.content is not None:
            self.content[...] = arr

    def read(self) -> tuple[int, Form]:
        """The clock and the form of the message that is in the buffer."""
        clock, length = _CLOCK_AND_LENGTH.unpack_from(self.bytes)
        description = self.bytes[_CLOCK_AND_LENGTH.size : _CLOCK_AND_LENGTH.size + length]
        form = self.form
        if form is None or description != form.description:
            dtype, *shape = description.tobytes().decode().split()
            form = form_of(tuple(map(int, shape)), np.dtype(dtype))
            self.set_form(form)
        return clock, form


class Slot(Header):
    """A header, the persistent request that sends it to one device, and the array that follows it."""

    __slots__ = ("body", "free", "request")

    def __init__(self, start: Any, to: int, tag: int, free: list[Slot]) -> None:
        super().__init__()
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

    def __init__(self, comm: Any, tag: int, memory: ReusedMemory) -> None:
        self.comm, self.tag, self.memory = comm, tag, memory
        self.sent = [0] * comm.size
        self.received = [0] * comm.size
        self._free: dict[int, list[Slot]] = defaultdict(list)
        """By target."""
        self._free_until_received: dict[int, list[Slot]] = defaultdict(list)
        """The same, of slots whose message leaves only when it is received."""
        self._busy: list[Slot] = []
        self._receiving: dict[int, tuple[Header, Any]] = {}
        """By source: a header, and the persistent request that receives into it."""

    def send(self, to: int, arr: Array, clock: int = 0, until_received: bool = False, owned: bool = False) -> None:
        """Sends an array, which the caller may change afterwards unless it is `owned`. `until_received`: it counts in
        `unreceived` until then."""
        free = (self._free_until_received if until_received else self._free)[to]
        if not free and self._busy:
            self.unreceived()
        if free:
            slot = free.pop()
        else:
            slot = Slot(self.comm.Ssend_init if until_received else self.comm.Send_init, to, self.tag, free)
        slot.write(arr, clock)
        slot.request.Start()
        if slot.content is None:
            content = ascontiguousarray(arr) if owned else self.memory.copy(arr)
            slot.body = self.comm.Isend([as_bytes(content), MPI.BYTE], to, self.tag + 1), content
            self._busy.append(slot)
        elif slot.request.Test():  # a small message has usually left already
            free.append(slot)
        else:
            self._busy.append(slot)
        self.sent[to] += 1

    def unreceived(self) -> int:
        """Messages sent with `until_received` that have not been received, and others that have not left."""
        if self._busy:
            busy, self._busy = self._busy, []
            for slot in busy:
                (slot.free if slot.has_left() else self._busy).append(slot)
        return len(self._busy)

    def has_come(self, source: int) -> bool:
        come: bool = self.comm.Iprobe(source, self.tag)
        return come

    def receive(self, source: int, wait: Callable[[Callable[[], Any]], None] | None = None) -> tuple[int, Array]:
        """The clock and the array of the next message from `source`. If it has not come, `wait` is called with a test
        whether it has; without `wait`, it must be on its way."""
        header, request = self._receiving.get(source) or self._new_receiving(source)
        request.Start()
        if not request.Test():
            self._wait_for(request, wait or (lambda _: request.Wait()))
        clock, form = header.read()
        if header.content is not None:
            array = header.content.copy()
        else:
            array = self.memory.empty(form.shape, form.dtype)
            self.comm.Recv([as_bytes(array), MPI.BYTE], source, self.tag + 1)
        self.received[source] += 1
        return clock, array

    def _new_receiving(self, source: int) -> tuple[Header, Any]:
        header = Header()
        receiving = header, self.comm.Recv_init([header.buffer, MPI.BYTE], source, self.tag)
        self._receiving[source] = receiving
        return receiving

    def _wait_for(self, request: Any, wait: Callable[[Callable[[], Any]], None]) -> None:
        try:
            wait(request.Test)
        except BaseException:
            request.Cancel()
            request.Wait()  # until it can be started again
            raise

    def finish(self) -> None:
        """Waits until all that was sent has left; every message must have been received."""
        bodies = [slot.body[0] for slot in self._busy if slot.body is not None]
        MPI.Request.Waitall([slot.request for slot in self._busy] + bodies)
        self.unreceived()

    def free(self) -> None:
        """Frees what MPI holds for requests, except for messages of a failed run that are still on their way."""
        if self.unreceived():
            _abandoned.extend(self._busy)
        free = [*self._free.values(), *self._free_until_received.values()]
        requests = [slot.request for slots in free for slot in slots]
        for request in requests + [receiving for _, receiving in self._receiving.values()]:
            request.Free()
        for kept in (self._busy, self._free, self._free_until_received, self._receiving):
            kept.clear()


_abandoned: list[Slot] = []
"""Messages that nobody will receive. MPI may read their memory as long as the process lives."""


def as_bytes(array: Array) -> Array:
    """The elements of a contiguous array, as bytes."""
    return array.reshape(-1).view(np.uint8)
