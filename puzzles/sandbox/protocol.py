"""Messages between a client and its server: a length in hexadecimal digits, then JSON."""

from __future__ import annotations

import json
from typing import IO, Any

LENGTH_DIGITS = 8


def send(stream: IO[bytes], message: dict[str, Any]) -> None:
    """Writes one message."""
    text = json.dumps(message).encode()
    stream.write(b"%0*x" % (LENGTH_DIGITS, len(text)) + text)
    stream.flush()


def receive(stream: IO[bytes], longest: int = 1 << 30) -> dict[str, Any] | None:
    """Reads the next message; None at the end.

    Raises:
        ValueError: this is no message, or one longer than `longest` bytes.
    """
    head = _read_exactly(stream, LENGTH_DIGITS)
    if len(head) < LENGTH_DIGITS:
        return None
    length = int(head, 16)
    if not 0 <= length <= longest:
        raise ValueError("a message is too long")
    text = _read_exactly(stream, length)
    if len(text) < length:
        return None
    message = json.loads(text)
    if not isinstance(message, dict):
        raise ValueError("a message is an object")
    return message


def _read_exactly(stream: IO[bytes], length: int) -> bytes:
    """So many bytes, or fewer at the end; a pipe gives them in pieces."""
    pieces = []
    while length > 0 and (piece := stream.read(length)):
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)
