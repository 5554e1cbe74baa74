"""Messages between the grader and the keeper: a length, then JSON."""

from __future__ import annotations

import json
from typing import Any, BinaryIO

HEAD = 8
"""Hexadecimal digits of the length."""


def send(stream: BinaryIO, message: dict[str, Any]) -> None:
    text = json.dumps(message).encode()
    stream.write(b"%0*x" % (HEAD, len(text)) + text)
    stream.flush()


def receive(stream: BinaryIO, longest: int = 1 << 30) -> dict[str, Any] | None:
    """The next message; None at the end.

    Raises:
        ValueError: this is no message, or one longer than `longest` bytes.
    """
    head = _exactly(stream, HEAD)
    if len(head) < HEAD:
        return None
    length = int(head, 16)
    if not 0 <= length <= longest:
        raise ValueError("a message is too long")
    text = _exactly(stream, length)
    if len(text) < length:
        return None
    message = json.loads(text)
    if not isinstance(message, dict):
        raise ValueError("a message is an object")
    return message


def _exactly(stream: BinaryIO, length: int) -> bytes:
    """So many bytes, or fewer at the end; a pipe gives them in pieces."""
    pieces = []
    while length > 0 and (piece := stream.read(length)):
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)
