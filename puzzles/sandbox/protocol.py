"""Messages between a client and its server: a length in hexadecimal digits, then JSON."""

import json
from typing import IO, Any

LENGTH_DIGITS = 8

LATE = ("trial", "recordings")
"""Parts of a request that follow it in a message of their own. The worker reads that after it has forked the devices,
so no device has the others' data in its memory."""

RUN_FOLDER = "run"
"""The only folder that a run can write to, in the server's folder."""


def framed(message: dict[str, Any]) -> bytes:
    """A message as it is sent."""
    text = json.dumps(message).encode()
    return b"%0*x" % (LENGTH_DIGITS, len(text)) + text


def send(stream: IO[bytes], message: dict[str, Any]) -> None:
    """Writes one message."""
    stream.write(framed(message))
    stream.flush()


def split(request: dict[str, Any]) -> list[dict[str, Any]]:
    """A request as one message, or as two if it has parts that are sent late."""
    late = {name: request[name] for name in LATE if name in request}
    early = {name: value for name, value in request.items() if name not in late}
    return [{**early, "late": True}, late] if late else [early]


def receive(stream: IO[bytes], longest: int = 1 << 30) -> dict[str, Any] | None:
    """Reads the next message; None at the end."""
    text = receive_bytes(stream, longest)
    return None if text is None else parsed(text)


def parsed(text: bytes) -> dict[str, Any]:
    """The message in some bytes."""
    message = json.loads(text)
    if not isinstance(message, dict):
        raise ValueError("a message is an object")
    return message


def length_in(head: bytes, longest: int) -> int:
    """The length of the message that follows."""
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
