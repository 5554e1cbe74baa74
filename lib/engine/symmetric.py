"""Symmetric buffers: allocated in the same order on every device, so that a place in one is a place in all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import zeros

from lib.engine.metering.arrays import own
from lib.engine.transports.base import Put
from lib.errors import RuleError

from .call import Call, require_plain
from .collectives import Array

if TYPE_CHECKING:
    from .engine import Future, ShardedEngine


class Symmetric:
    """The buffers of one device, and what it has put into those of others since the last barrier."""

    def __init__(self, engine: ShardedEngine) -> None:
        self.engine = engine
        self.buffers: list[Array] = []
        self.puts: list[tuple[int, Put]] = []
        engine._port.land = self.write

    def allocate(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        buffer = zeros(shape, dtype)
        try:
            require_plain(buffer.shape, buffer.dtype)
        except RuleError as why:
            raise self.engine._told(why, "symmetric") from None
        self.buffers.append(buffer)  # before the meeting: whoever leaves it first may put into this one
        port = self.engine._port
        # A meeting, only so that buffers that differ are told here and not where a put would go astray.
        port.collective(Call("symmetric", "", 0, buffer.shape, buffer.dtype.str, tuple(range(port.size))), buffer)
        return buffer if port.meter is None else own(buffer, port.meter)

    def put(self, src: Array, dst: Array, target: int) -> Future:
        from .engine import Future

        port = self.engine._port
        try:
            target = self.engine._partner(target)
            buffer, offset = self._find(dst)
            if dst.shape != src.shape or dst.dtype != src.dtype:
                raise RuleError(
                    f"it puts {src.dtype} {src.shape} into {dst.dtype} {dst.shape}; "
                    "let both have the same shape and dtype"
                )
        except RuleError as why:
            raise self.engine._told(why, "send_async", target) from None
        if port.meter is not None:
            port.meter.communicate("send_async", src.nbytes, 2)
        put = Put(buffer, offset, dst.strides, src.copy())
        if not port.landed(target, put):
            self.puts.append((target, put))
        return Future()

    def _find(self, dst: Array) -> tuple[int, int]:
        """The number of the buffer that `dst` is a view of, and the byte at which it begins there."""
        address = _address(dst)
        for number, buffer in enumerate(self.buffers):
            offset = address - _address(buffer)
            if 0 <= offset <= buffer.nbytes and np.may_share_memory(dst, buffer):
                return number, offset
        raise RuleError("dst is not a view of a symmetric buffer; get one from self.symmetric(shape, dtype)")

    def fence(self, call: Call) -> None:
        puts, self.puts = self.puts, []
        for put in self.engine._port.fence(call, puts):
            self.write(put)

    def write(self, put: Put) -> None:
        """What is put lands in this device's buffer."""
        flat = self.buffers[put.buffer].reshape(-1).view(np.uint8)
        place: Array = np.ndarray(put.content.shape, put.content.dtype, flat.data, put.offset, put.strides)
        place[...] = put.content


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
