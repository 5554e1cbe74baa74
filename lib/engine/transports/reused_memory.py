"""Large results in the memory of earlier ones that nobody uses any more: to get new pages from the system takes as long
as to move the bytes.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy import empty  # by name: a metered run counts what players make with np.empty

from lib.engine.collectives import Array

MIN_BYTES = 1 << 20
"""Smaller arrays are left to the allocator, which reuses their memory itself."""

MAX_UNUSED_BYTES = 1 << 28
"""The most that is kept for later results."""


class ReusedMemory:
    """The memory of one run."""

    def __init__(self) -> None:
        self._unused: dict[int, list[Array]] = {}
        """Blocks by their size in bytes."""
        self._left = MAX_UNUSED_BYTES

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """A new array in C order, with any content. Its memory comes back when no view of it is left."""
        nbytes = prod(shape) * dtype.itemsize
        if nbytes < MIN_BYTES:
            return empty(shape, dtype)
        blocks = self._unused.get(nbytes)
        if blocks:
            block = blocks.pop()
            self._left += nbytes
        else:
            block = empty(nbytes, np.uint8)
        return np.asarray(_Lease(self, block, shape, dtype))

    def copy(self, array: Array) -> Array:
        """A copy in C order."""
        if array.nbytes < MIN_BYTES:
            return array.copy()
        copied = self.empty(array.shape, array.dtype)
        copied[...] = array
        return copied

    def give_back(self, block: Array) -> None:
        if self._left >= block.size:
            self._left -= block.size
            self._unused.setdefault(block.size, []).append(block)

    def close(self) -> None:
        """Returns all unused memory to the system, and keeps none from now on."""
        self._left = 0
        self._unused.clear()


class _Lease:
    """Lends a block to one array, whose base it is, and gives it back afterwards."""

    __slots__ = ("__array_interface__", "block", "memory")

    def __init__(self, memory: ReusedMemory, block: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.memory, self.block = memory, block
        address = block.__array_interface__["data"]
        self.__array_interface__ = {"version": 3, "shape": shape, "typestr": dtype.str, "data": address}

    def __del__(self) -> None:
        self.memory.give_back(self.block)
