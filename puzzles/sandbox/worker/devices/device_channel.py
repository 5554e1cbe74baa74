"""Starts the devices, children of the worker, each with one channel to it: messages of plain data, with arrays as raw
bytes behind the JSON."""

import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from math import prod
from struct import Struct
from typing import Any, NamedTuple, NoReturn

from numpy import dtype as dtype_of
from numpy import empty, frombuffer  # by name: a metered run counts what players make with np.empty

from puzzles.sandbox.plain_data import ARRAY_KINDS, pack, unpack
from puzzles.sandbox.worker import landlock, seccomp

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


CHANNEL = 3
"""The only file descriptor of a device besides the usual three."""

WRITABLE = ("/dev/null", "/dev/zero", "/dev/full")


class DeviceEnd(NamedTuple):
    """The judge's end of a device: its channel, and the pipe that it prints to."""

    channel: DeviceChannel
    printed: int


def fork_devices(
    size: int, readable: Sequence[Sequence[str]], work: Callable[[int, DeviceChannel], NoReturn]
) -> list[DeviceEnd]:
    """Starts devices 0 to `size` - 1; `work` runs in each. They share nothing with each other that can be written to:
    no file, no descriptor, no memory. `readable` is what the worker may list and read."""
    sys.stdout.flush()
    files = _visible_files(readable)
    ends: list[DeviceEnd] = []
    for device in range(size):
        ours, theirs = socket.socketpair()
        printed, prints = os.pipe()
        if os.fork() == 0:
            _become_device(device, theirs.fileno(), prints, files, work)
        theirs.close()
        os.close(prints)
        os.set_blocking(printed, False)
        ends.append(DeviceEnd(DeviceChannel(ours.detach()), printed))
    if files >= 0:
        os.close(files)
    return ends


def _become_device(
    device: int, channel: int, prints: int, files: int, work: Callable[[int, DeviceChannel], NoReturn]
) -> NoReturn:
    import resource  # here, with fcntl: a system that cannot fork has neither
    from fcntl import F_DUPFD, fcntl

    try:
        channel, prints = [fcntl(fd, F_DUPFD, CHANNEL + 1) for fd in (channel, prints)]
        for fd in (1, 2):
            os.dup2(prints, fd)
        null = os.open(os.devnull, os.O_RDONLY)  # its own: an open file has a state, which would be shared
        os.dup2(null, 0)
        os.dup2(channel, CHANNEL)
        landlock.restrict_to(files)  # while that descriptor is there, too: nothing is left to write to
        sys.stdin.close()  # while its descriptor is there: else Python 3.13 reports it when the file is freed
        os.closerange(CHANNEL + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  # as long as the process
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        if files >= 0:
            seccomp.restrict_device()
        work(device, DeviceChannel(CHANNEL))
    except BaseException as why:
        print(f"the device ended with {type(why).__name__}: {why}", file=sys.stderr, flush=True)
    finally:
        os._exit(1)


def _visible_files(readable: Sequence[Sequence[str]]) -> int:
    """The ruleset of all devices: what the worker may read, without /proc, where the others' figures could be read."""
    if not readable:
        return -1
    to_list, to_read = readable
    below_root = [f"/{name}" for name in os.listdir("/")] if "/" in to_read else []
    visible = [path for path in (*to_read, *below_root) if path != "/" and not path.startswith("/proc")]
    return landlock.ruleset((*to_list, "/") if below_root else to_list, visible, WRITABLE)
