"""Large results are made in the memory of earlier ones that nobody uses any more, and by all processors.

New pages from the system take as long as moving the bytes, and one processor alone does not move them as fast as the
memory can.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy import asarray, empty  # by name: a metered run counts what players make with np.empty

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
        return asarray(_Lease(self, block, shape, dtype))

    def copy(self, array: Array) -> Array:
        """A copy in C order."""
        if array.nbytes < MIN_BYTES:
            return array.copy()
        copied = self.empty(array.shape, array.dtype)
        copied[...] = array
        return copied

    def moved(self, move: Callable[[int], Array], devices: Sequence[int], nbytes: int) -> list[Array]:
        """The result of `nbytes` that `move` makes for each device; large ones at the same time. numpy lets other
        threads run while it copies. Sums are not made like this: a thread would not know the player's `np.errstate`."""
        if nbytes < MIN_BYTES or len(devices) < 2 or _processors() < 2:
            return [move(device) for device in devices]
        try:
            moving = [self._threads.submit(move, device) for device in devices]
        except RuntimeError:  # no more threads may start here
            return [move(device) for device in devices]
        return [one.result() for one in moving]

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_processors(), "moves-arrays")

    def give_back(self, block: Array) -> None:
        if self._left >= block.size:
            self._left -= block.size
            self._unused.setdefault(block.size, []).append(block)

    def close(self) -> None:
        """Returns all unused memory to the system, keeps none from now on, and ends the threads."""
        self._left = 0
        self._unused.clear()
        if "_threads" in self.__dict__:
            self._threads.shutdown()


def _processors() -> int:
    """The number of processors that this process may use; the limit of numpy's own threads is one for these too."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    allowed = os.environ.get("OPENBLAS_NUM_THREADS", "")
    return min(here, int(allowed)) if allowed.isdigit() else here


class _Lease:
    """Lends a block to one array, whose base it is, and gives it back afterwards."""

    __slots__ = ("__array_interface__", "block", "memory")

    def __init__(self, memory: ReusedMemory, block: Array, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.memory, self.block = memory, block
        address = block.__array_interface__["data"]
        self.__array_interface__ = {"version": 3, "shape": shape, "typestr": dtype.str, "data": address}

    def __del__(self) -> None:
        self.memory.give_back(self.block)
