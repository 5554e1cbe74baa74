"""Messages from one device to another; a sender does not wait for the receiver.

A message is a pickled header, which contains the elements of a small array. A large array follows the header.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pickle import dumps
from typing import Any

from numpy import ndarray  # by name: a metered run counts what players make

from lib.engine.call import dtype_code
from lib.engine.collectives import Array

from .carrier import Carrier

Wait = Callable[[Callable[[], Any], str], None]
"""Waits until a test is true, in a call that a message would name; may raise an error."""


def poll(test: Callable[[], Any], _: str = "") -> None:
    """Polls until `test` is true, for data that is already in transit."""
    while not test():
        os.sched_yield()


class Sending:
    """Requests to send that have not completed. A request refers to the memory that it sends."""

    def __init__(self) -> None:
        self._requests: list[Any] = []

    def add(self, request: Any) -> None:
        """Adds a request. Small requests have usually completed at once, and are not kept."""
        self.count()
        if not request.Test():
            self._requests.append(request)

    def count(self) -> int:
        self._requests = [request for request in self._requests if not request.Test()]
        return len(self._requests)

    def abandon(self) -> None:
        """Keeps the memory of requests that may never complete, because their run has failed."""
        self.count()
        _abandoned.extend(self._requests)


class MessageChannel:
    """All messages of one device, to and from the others; they use `tag` and the next one."""

    def __init__(self, carrier: Carrier, tag: int) -> None:
        self.carrier, self.comm, self.tag = carrier, carrier.data, tag
        self.sent = [0] * self.comm.size
        """Messages sent to each device."""
        self.received = [0] * self.comm.size
        """Messages received from each device."""
        self._headers, self._bodies = Sending(), Sending()
        self._next: dict[int, tuple[Any, Array, Any]] = {}
        """By source, the next message if its header has arrived: the note, the array, and for a large array the request
        to receive it."""

    def send(self, to: int, arr: Array, note: Any) -> None:
        """Sends a note with an array in C order that nobody changes afterwards."""
        content = arr.tobytes() if arr.nbytes <= self.carrier.max_small else None
        row = dumps((note, tuple(arr.shape), dtype_code(arr.dtype), content))
        start = self.comm.Issend if content is None else self.comm.Isend
        header = start(row, to, self.tag)
        self._headers.add(header)
        if content is None:
            self._bodies.add(self.carrier.send_body(arr, to, self.tag + 1, header))
        self.sent[to] += 1

    def has_arrived(self, source: int) -> bool:
        """True if the next message from `source` has arrived. Begins to receive an array whose header has arrived."""
        if source not in self._next:
            header = self.comm.improbe(source, self.tag)
            if header is None:
                return False
            self._next[source] = self._begun(source, *header.recv())
        body = self._next[source][2]
        return body is None or body.Test()

    def _begun(
        self, source: int, note: Any, shape: tuple[int, ...], dtype: str, content: bytes | None
    ) -> tuple[Any, Array, Any]:
        if content is not None:
            return note, ndarray(shape, dtype, content).copy(), None
        return note, *self.carrier.receive_body(shape, dtype, source, self.tag + 1)

    def receive(self, source: int, wait: Wait = poll) -> tuple[Any, Array]:
        """The note and the array of the next message from `source`, for which `wait` waits. Without `wait`, the message
        must be in transit."""
        wait(partial(self.has_arrived, source), f"receive({source})")
        self.received[source] += 1
        note, array, _ = self._next.pop(source)
        return note, array

    def finish(self) -> None:
        """Waits until everything has been sent; every message must have been received."""
        poll(lambda: not self._headers.count() and not self._bodies.count())

    def free(self) -> None:
        """Abandons what a failed run has sent or begun to receive; after `finish`, nothing is left."""
        self._headers.abandon()
        self._bodies.abandon()
        _abandoned.extend(body for _, _, body in self._next.values() if body is not None)


_abandoned: list[Any] = []
"""Requests that are never completed. MPI may use their memory as long as the process lives."""
