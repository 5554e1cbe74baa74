"""The connection of the judge with one device: messages of plain data, with arrays as raw bytes behind the JSON."""

import json
import os
from math import prod
from struct import Struct
from typing import Any

from numpy import dtype as dtype_of
from numpy import empty, frombuffer  # by name: a metered run counts what players make with np.empty

from puzzles.sandbox.plain_data import ARRAY_KINDS, pack, unpack

KINDS = ARRAY_KINDS + "SUVmM"
"""Kinds of numpy types that devices may send each other: all but Python objects."""

LENGTHS = Struct("<4sQQ")
"""A mark, the bytes of the JSON, and the bytes of the arrays."""

MARK = b"wire"
MAX_BYTES = 1 << 28
"""Of one message."""


class WireError(Exception):
    """The other end has gone, or has written something else than messages."""


class DeviceChannel:
    """One end of a stream socket, by its file descriptor."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.is_sending = False

    def send(self, *parts: Any) -> None:
        """Sends numbers, texts, arrays, and lists, tuples and dictionaries of them."""
        contents: list[bytes] = []

        def write(array: Any) -> list[Any]:
            contents.append(array.tobytes())
            return [array.dtype.str, list(array.shape), ""]

        head = json.dumps([pack(part, write, KINDS) for part in parts]).encode()
        message = b"".join([LENGTHS.pack(MARK, len(head), sum(map(len, contents))), head, *contents])
        self.is_sending = True
        written = 0
        while written < len(message):
            written += os.write(self.fd, message[written:] if written else message)
        self.is_sending = False

    def receive(self) -> list[Any]:
        """Waits for the next message."""
        mark, head, rest = LENGTHS.unpack(self._read(LENGTHS.size))
        if mark != MARK or head + rest > MAX_BYTES:
            raise WireError("what it wrote to the wire is not a message")
        try:
            parts = json.loads(self._read(head))
            content = memoryview(self._read(rest))

            def read(kind: str, shape: list[Any], _: str) -> Any:
                nonlocal content
                array, content = _array(kind, shape, content)
                return array

            received = [unpack(part, read) for part in parts]
        except (ValueError, TypeError, SyntaxError, RecursionError):
            raise WireError("what it wrote to the wire is not a message") from None
        if content:
            raise WireError("a message has more bytes than its arrays")
        return received

    def _read(self, count: int) -> bytes:
        pieces = []
        while count:
            piece = os.read(self.fd, min(count, 1 << 20))
            if not piece:
                raise WireError("it has closed the wire")
            pieces.append(piece)
            count -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _array(kind: str, shape: list[Any], content: memoryview) -> tuple[Any, memoryview]:
    """An array that owns its memory, from the beginning of `content`; and the rest."""
    dtype = dtype_of(kind)
    nbytes = prod(shape) * dtype.itemsize
    is_known = dtype.kind in KINDS and not dtype.names and all(type(n) is int and n >= 0 for n in shape)
    if not is_known or nbytes > len(content):
        raise ValueError("an array is not as long as it says")
    if not nbytes:
        return empty(shape, dtype), content
    return frombuffer(content[:nbytes], dtype).reshape(shape).copy(), content[nbytes:]
