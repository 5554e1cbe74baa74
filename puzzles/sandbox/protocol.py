"""Messages between a client and its server, a length in hexadecimal digits and then JSON, and the client's ends of the
pipes."""

import json
import os
import select
from collections.abc import Iterable
from time import monotonic
from typing import IO, Any

LENGTH_DIGITS = 8

RUN_FOLDER = "run"
"""The only folder that a run can write to, in the server's folder."""

MAX_SHOWN_OUTPUT = 4096
"""Bytes of a run's output that are kept to be shown."""


def framed(message: dict[str, Any]) -> bytes:
    text = json.dumps(message).encode()
    return b"%0*x" % (LENGTH_DIGITS, len(text)) + text


def write_all(fd: int, data: bytes) -> None:
    """Writes bytes to a pipe, which may take them in pieces."""
    while data:
        data = data[os.write(fd, data) :]


def send(stream: IO[bytes], message: dict[str, Any]) -> None:
    stream.write(framed(message))
    stream.flush()


def receive(stream: IO[bytes], longest: int = 1 << 30) -> dict[str, Any] | None:
    """Reads the next message; None at the end."""
    text = receive_bytes(stream, longest)
    return None if text is None else parsed(text)


def parsed(text: bytes) -> dict[str, Any]:
    message = json.loads(text)
    if not isinstance(message, dict):
        raise ValueError("a message is an object")
    return message


def length_in(head: bytes, longest: int) -> int:
    length = int(head, 16)
    if not 0 <= length <= longest:
        raise ValueError("a message is too long")
    return length


def receive_bytes(stream: IO[bytes], longest: int = 1 << 30) -> bytes | None:
    """Reads the next message, and does not parse it; otherwise as `receive`."""
    head = _read_exactly(stream, LENGTH_DIGITS)
    if len(head) < LENGTH_DIGITS:
        return None
    length = length_in(head, longest)
    text = _read_exactly(stream, length)
    return text if len(text) == length else None


def _read_exactly(stream: IO[bytes], length: int) -> bytes:
    """So many bytes, or fewer at the end; a pipe gives them in pieces."""
    pieces = []
    while length > 0 and (piece := stream.read(length)):
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)


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
        self._write(b"".join(map(framed, messages)), deadline)
        head = self._read(LENGTH_DIGITS, deadline)
        if head is None:
            return None
        text = self._read(length_in(head, longest), deadline)
        return None if text is None else parsed(text)

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
