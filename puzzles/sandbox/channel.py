"""The grader's ends of a server's pipes: requests and answers, until a deadline."""

import os
import select
from collections.abc import Iterable
from time import monotonic
from typing import IO, Any

from . import protocol

PIECE = 1 << 18
"""Bytes read or written at once."""


class Channel:
    """Sends messages to a server and reads its answers, without a thread that watches the time."""

    def __init__(self, requests: IO[bytes], answers: IO[bytes]) -> None:
        """Both pipes are used by their file descriptors only, so nothing is left in buffers."""
        self._requests, self._answers = requests.fileno(), answers.fileno()
        for fd in (self._requests, self._answers):
            os.set_blocking(fd, False)

    def exchange(self, messages: Iterable[dict[str, Any]], seconds: float, longest: int) -> dict[str, Any] | None:
        """The answer, of at most `longest` bytes, to some messages; None if the server has ended."""
        deadline = monotonic() + seconds
        self._write(b"".join(map(protocol.framed, messages)), deadline)
        head = self._read(protocol.LENGTH_DIGITS, deadline)
        if head is None:
            return None
        text = self._read(protocol.length_in(head, longest), deadline)
        return None if text is None else protocol.parsed(text)

    def _write(self, data: bytes, deadline: float) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._requests, left[:PIECE]) :]
            except BlockingIOError:
                _wait(self._requests, select.POLLOUT, deadline)

    def _read(self, length: int, deadline: float) -> bytes | None:
        """So many bytes; None if they end before."""
        pieces = []
        while length > 0:
            try:
                piece = os.read(self._answers, min(length, PIECE))
            except BlockingIOError:
                _wait(self._answers, select.POLLIN, deadline)
                continue
            if not piece:
                return None
            pieces.append(piece)
            length -= len(piece)
        return b"".join(pieces)


def _wait(fd: int, event: int, deadline: float) -> None:
    left = deadline - monotonic()
    poll = select.poll()
    poll.register(fd, event)
    if left <= 0 or not poll.poll(left * 1000):
        raise TimeoutError
