"""Messages from one device to another, which a sender hands over without waiting for the receiver.

A message is a pickled header, which holds the elements of a small array. A large array follows the header.
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
"""Waits until a test is true, in a call that a message would name; may end in an error."""


def poll(test: Callable[[], Any], _: str = "") -> None:
    """Polls until `test` is true. For data that is already on its way."""
    while not test():
        os.sched_yield()


class Sending:
    """Requests to send that have not completed. A request refers to the memory that it sends."""

    def __init__(self) -> None:
        self._requests: list[Any] = []

    def add(self, request: Any) -> None:
        """Adds a request. Most small ones have completed at once, and are not kept."""
        self.count()
        if not request.Test():
            self._requests.append(request)

    def count(self) -> int:
        """The number of requests that have not completed."""
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
        """Messages to each device."""
        self.received = [0] * self.comm.size
        """Messages from each device."""
        self._headers, self._bodies = Sending(), Sending()
        self._next: dict[int, tuple[Any, Array, Any]] = {}
        """By source, the next message if its header is here: the note, the array, and the request to receive the array
        if it is large."""

    def send(self, to: int, arr: Array, note: Any, until_received: bool = False) -> None:
        """Sends a note with an array in C order that nobody changes afterwards. `until_received`: it counts in
        `unreceived` until then."""
        content = arr.tobytes() if arr.nbytes <= self.carrier.max_small else None
        row = dumps((note, tuple(arr.shape), dtype_code(arr.dtype), content))
        start = self.comm.Issend if until_received or content is None else self.comm.Isend
        header = start(row, to, self.tag)
        self._headers.add(header)
        if content is None:
            self._bodies.add(self.carrier.send_body(arr, to, self.tag + 1, header))
        self.sent[to] += 1

    def unreceived(self) -> int:
        """Messages sent with `until_received` that have not been received, and headers of others that have not left."""
        return self._headers.count()

    def has_arrived(self, source: int) -> bool:
        """True if the next message from `source` is here. Begins to receive an array whose header is here."""
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
        must be on its way."""
        wait(partial(self.has_arrived, source), f"receive({source})")
        self.received[source] += 1
        note, array, _ = self._next.pop(source)
        return note, array

    def finish(self) -> None:
        """Waits until all that was sent has left; every message must have been received."""
        poll(lambda: not self.unreceived() and not self._bodies.count())

    def free(self) -> None:
        """Abandons what a failed run has sent or begun to receive; after `finish` there is nothing."""
        self._headers.abandon()
        self._bodies.abandon()
        _abandoned.extend(body for _, _, body in self._next.values() if body is not None)


_abandoned: list[Any] = []
"""Requests that nobody completes. MPI may use their memory as long as the process lives."""
