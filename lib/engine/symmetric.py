"""Symmetric buffers for one-sided puts: allocated in the same order on every device, so that positions correspond.

This is the memory model of OpenSHMEM: a put needs no matching receive, and is complete after a barrier.
"""

from typing import Any

from numpy.typing import ArrayLike

from lib.engine.transports.base import Port, Put, call_place
from lib.errors import RuleError

from .arguments import checked_partner, require_sendable
from .call import CollectiveCall, dtype_code, put_traffic
from .collectives import Array


class SymmetricBuffers:
    """The buffers of one device, and its puts into other devices' buffers since the last barrier."""

    def __init__(self, port: Port) -> None:
        self.port = port
        self.buffers: list[Array] = []
        self.puts: list[tuple[int, Put]] = []
        port.apply_put = self.write

    def allocate(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """Allocates a buffer of zeros. All devices synchronize, so that a difference in shape or dtype is refused
        before a put can go to the wrong place."""
        port = self.port
        buffer = port.library.zeros(shape, dtype)
        try:
            require_sendable(buffer.shape, buffer.dtype)
        except RuleError as why:
            raise why.at(call_place(port, "symmetric")) from None
        self.buffers.append(buffer)  # before synchronizing: the first device to continue may put into this one
        everyone = tuple(range(port.size))
        port.collective(
            CollectiveCall("symmetric", "", 0, tuple(buffer.shape), dtype_code(buffer.dtype), everyone), buffer
        )
        return buffer if port.meter is None else port.library.charged(buffer, port.meter)

    def put(self, source: ArrayLike, place: ArrayLike, target: int) -> None:
        """Sends `source` to the position on device `target` that corresponds to `place`."""
        port = self.port
        library = port.library
        try:
            src, dst = library.plain(source), library.plain(place)
            target = checked_partner(target, port.device, port.size)
            number, offset = self._find(dst)
            buffer = self.buffers[number]
            require_sendable(src.shape, src.dtype)
            if dst.shape != src.shape or dst.dtype != src.dtype:
                raise RuleError(
                    f"it puts {src.dtype} {tuple(src.shape)} into {dst.dtype} {tuple(dst.shape)}; "
                    "both must have the same shape and dtype"
                )
            if dst.dtype != buffer.dtype:
                raise RuleError(f"dst is a view as {dst.dtype} of a buffer of {buffer.dtype}; keep the buffer's dtype")
        except RuleError as why:
            raise why.at(call_place(port, "send_async", target)) from None
        put = Put(number, offset, library.strides(dst), library.copy(src))
        if port.meter is not None:
            port.meter.communicate("send_async", put_traffic(put.content.shape, put.content.dtype, put.strides))
        if not port.try_put(target, put):
            self.puts.append((target, put))

    def _find(self, dst: Array) -> tuple[int, int]:
        """The number of the buffer that `dst` is a view of, and the byte at which it starts there."""
        for number, buffer in enumerate(self.buffers):
            offset = self.port.library.offset_in(buffer, dst)
            if offset is not None:
                return number, offset
        raise RuleError("dst is not a view of a symmetric buffer; get one from self.symmetric(shape, dtype)")

    def fence(self, call: CollectiveCall) -> None:
        """Synchronizes the call's group. Afterwards all puts between its members have arrived."""
        puts = [(to, put) for to, put in self.puts if to in call.group]
        self.puts = [(to, put) for to, put in self.puts if to not in call.group]
        for put in self.port.fence(call, puts):
            self.write(put)

    def write(self, put: Put) -> None:
        """Writes a put that has arrived into this device's buffer."""
        buffer = self.buffers[put.buffer]
        self.port.library.place_in(buffer, put.offset, put.strides, put.content)[...] = put.content
