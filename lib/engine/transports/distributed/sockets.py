"""Sockets between all processes, with those methods of an mpi4py communicator that control messages and rows need.

torch.distributed can neither ask whether a message has arrived nor wait for any of several, so it cannot carry these
messages. A socket can do both, and reports at once when the process at its other end has ended.
"""

from __future__ import annotations

import socket
from collections import defaultdict, deque
from collections.abc import Mapping
from itertools import count
from pickle import dumps, loads
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from struct import Struct
from typing import Any, NamedTuple

FRAME = Struct("<qqqq")
"""The header of each content: its length, its tag, its number if its receipt is to be confirmed, and the number that it
confirms. Numbers begin at 1."""

PAUSE = 0.05
"""Seconds after which a waiting process looks at the time again."""

ANY = -1


class Message(NamedTuple):
    """A message that has arrived."""

    content: bytes

    def recv(self) -> Any:
        return loads(self.content)


class Request(NamedTuple):
    """A message that has been sent; one with a number is to be confirmed."""

    communicator: SocketCommunicator
    number: int

    def Test(self) -> bool:  # as mpi4py calls it
        return self.communicator.is_done(self.number)


class SocketCommunicator:
    """This process's connections, by rank. Sending never waits: data that a socket does not accept at once is kept."""

    def __init__(self, rank: int, sockets: Mapping[int, socket.socket]) -> None:
        self.rank, self.size = rank, len(sockets) + 1
        self.lost: set[int] = set()
        """Ranks whose connections have ended."""
        self._sockets = sockets
        self._selector = DefaultSelector()
        self._received: dict[int, bytearray] = {other: bytearray() for other in sockets}
        self._unsent: dict[int, bytearray] = {other: bytearray() for other in sockets}
        self._messages: dict[int, dict[int, deque[tuple[int, bytes]]]] = defaultdict(lambda: defaultdict(deque))
        """By tag and source: the number to confirm, and the content."""
        self._numbers, self._awaited = count(1), set[int]()
        self._is_new = False
        for other, end in sockets.items():
            end.setblocking(False)
            self._selector.register(end, EVENT_READ, other)

    def Isend(self, content: bytes, to: int, tag: int) -> Request:
        self._send(to, tag, content)
        return Request(self, 0)

    def Issend(self, content: bytes, to: int, tag: int) -> Request:
        """Sends a message; the request is done when the message has been received."""
        number = next(self._numbers)
        self._awaited.add(number)
        self._send(to, tag, content, number)
        return Request(self, number)

    def is_done(self, number: int) -> bool:
        """True if the message with this number need not be confirmed any more."""
        if number in self._awaited:
            self._advance(0)
        return number not in self._awaited

    def isend(self, given: Any, to: int, tag: int) -> Request:
        return self.Isend(dumps(given), to, tag)

    def improbe(self, source: int = ANY, tag: int = 0) -> Message | None:
        """Takes a message with this tag, if one has arrived."""
        self._advance(0)
        boxes = self._messages[tag]
        for rank in list(boxes) if source == ANY else [source]:
            if boxes[rank]:
                number, content = boxes[rank].popleft()
                if number:
                    self._send(rank, 0, b"", confirms=number)
                return Message(content)
        return None

    def allgather(self, given: Any) -> list[Any]:
        for other in self._sockets:
            self.isend(given, other, ANY)
        contents = {self.rank: given}
        while missing := [rank for rank in range(self.size) if rank not in contents]:
            come = self.improbe(missing[0], ANY)
            if come is not None:
                contents[missing[0]] = come.recv()
            elif missing[0] in self.lost:
                contents[missing[0]] = given
            else:
                self.idle()
        return [contents[rank] for rank in range(self.size)]

    def idle(self) -> None:
        """Waits a short time until something arrives; not at all if something has arrived since the last call."""
        self._is_new = self._is_new or self._advance(PAUSE)
        self._is_new = False

    def flush(self) -> None:
        """Waits until everything has been sent, or its receiver has ended."""
        while any(self._unsent.values()):
            self._advance(PAUSE)

    def _send(self, to: int, tag: int, content: bytes, number: int = 0, confirms: int = 0) -> None:
        if to not in self.lost:
            self._unsent[to] += FRAME.pack(len(content), tag, number, confirms) + content
            self._write(to)

    def _write(self, to: int) -> None:
        unsent, end = self._unsent[to], self._sockets[to]
        try:
            while unsent:
                del unsent[: end.send(unsent)]
        except BlockingIOError:
            pass
        except OSError:
            return self._lose(to)
        self._selector.modify(end, EVENT_READ | EVENT_WRITE if unsent else EVENT_READ, to)

    def _advance(self, seconds: float) -> bool:
        """Sends and receives what it can; otherwise waits for so many seconds. True if something has arrived."""
        for key, events in self._selector.select(seconds):
            if events & EVENT_WRITE:
                self._write(key.data)
            if events & EVENT_READ and key.data not in self.lost:
                self._read(key.data)
        return self._is_new

    def _read(self, source: int) -> None:
        buffer = self._received[source]
        try:
            while part := self._sockets[source].recv(1 << 20):
                buffer += part
            self._lose(source)
        except BlockingIOError:
            pass
        except OSError:
            self._lose(source)
        while len(buffer) >= FRAME.size:
            length, tag, number, confirms = FRAME.unpack_from(buffer)
            if len(buffer) < FRAME.size + length:
                break
            self._is_new = True
            self._awaited.discard(confirms)
            if not confirms:
                self._messages[tag][source].append((number, bytes(buffer[FRAME.size : FRAME.size + length])))
            del buffer[: FRAME.size + length]

    def _lose(self, other: int) -> None:
        self._is_new = True
        self.lost.add(other)
        self._unsent[other].clear()
        self._selector.unregister(self._sockets[other])
