"""Large results are made in the memory of earlier ones that nobody uses any more, and by all processors.

New pages from the system take as long as moving the bytes, and one processor alone does not move them as fast as the
memory can.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property, partial
from math import prod
from threading import RLock
from typing import Any

import numpy as np
from numpy import asarray, empty  # by name: a metered run counts what players make with np.empty

from lib.engine.collectives import Array

MIN_BYTES = 1 << 17
"""Smaller arrays are left to the allocator, which reuses their memory itself; larger ones get new pages (mmap)."""

MIN_MOVED_BYTES = 1 << 20
"""Fewer are not worth waking another thread."""

CHUNK_BYTES = 1 << 20
"""What a thread copies at once."""

MAX_UNUSED_BYTES = 1 << 28
"""The most that is kept for later results."""


class ReusedMemory:
    """The memory of one run."""

    def __init__(self) -> None:
        self._unused: dict[int, list[Array]] = {}
        """Blocks by their size in bytes."""
        self._left = MAX_UNUSED_BYTES
        self._closed = False
        self._lock = RLock()  # results are also made in other threads, and may be freed in any

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """A new array in C order, with any content. Its memory comes back when no view of it is left."""
        nbytes = prod(shape) * dtype.itemsize
        if nbytes < MIN_BYTES:
            return empty(shape, dtype)
        block = self._take(nbytes)
        if block is None:
            block = empty(nbytes, np.uint8)
        return asarray(Lease(block.__array_interface__["data"], shape, dtype, partial(self.give_back, block)))

    def _take(self, nbytes: int) -> Array | None:
        with self._lock:
            blocks = self._unused.get(nbytes)
            if not blocks:
                return None
            self._left += nbytes
            return blocks.pop()

    def copy(self, array: Array) -> Array:
        """A copy in C order."""
        if array.nbytes < MIN_BYTES:
            return array.copy()
        copied = self.empty(array.shape, array.dtype)
        self.copy_into(copied, array)
        return copied

    def copy_into(self, copied: Array, array: Array) -> None:
        """Copies an array to another one in C order, of the same shape and dtype."""
        if array.nbytes < MIN_MOVED_BYTES:
            copied[...] = array
            return
        to, of = (copied.reshape(-1), array.reshape(-1)) if array.flags.c_contiguous else (copied, array)
        rows = max(1, len(to) * CHUNK_BYTES // array.nbytes)

        def move(start: int) -> None:
            to[start : start + rows] = of[start : start + rows]

        self.moved(move, range(0, len(to), rows), array.nbytes)

    def moved(self, move: Callable[[int], Any], items: Sequence[int], nbytes: int) -> list[Any]:
        """The results of `move` for each item, which moves `nbytes` in all or more; of large ones several at the same
        time. numpy lets other threads run while it copies. Sums are not made like this: a thread would not know the
        player's `np.errstate`."""
        if nbytes < MIN_MOVED_BYTES or len(items) < 2 or _processors() < 2:
            return [move(item) for item in items]
        parts = _Parts(move, items)
        helpers = self._helped(parts.take)
        try:
            parts.take()
        finally:
            parts.left.clear()
            for helper in helpers:
                if not helper.cancel():  # on a busy machine it may not have begun
                    helper.result()
            results = parts.forget()
        return results

    def _helped(self, take: Callable[[], None]) -> list[Future[None]]:
        """Lets the other threads take parts of the work too."""
        try:
            return [self._threads.submit(take) for _ in range(_processors() - 1)]
        except RuntimeError:  # no more threads may start here
            return []

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(_processors() - 1, "moves-arrays")

    def give_back(self, block: Array) -> None:
        """Keeps a block; where there is no room, those of the sizes that have come back least recently leave."""
        with self._lock:
            if self._closed or block.size > MAX_UNUSED_BYTES:
                return
            self._unused[block.size] = [*self._unused.pop(block.size, []), block]
            self._left -= block.size
            while self._left < 0:
                self._left += self._drop_one()

    def _drop_one(self) -> int:
        oldest = next(size for size, blocks in self._unused.items() if blocks)
        return int(self._unused[oldest].pop().size)

    def close(self) -> None:
        """Returns all unused memory to the system, keeps none from now on, and ends the threads."""
        self._closed = True
        self._unused.clear()
        if "_threads" in self.__dict__:
            self._threads.shutdown()


class _Parts:
    """Work in parts, which several threads take. A thread may keep it for a while after the last part."""

    def __init__(self, move: Callable[[int], Any], items: Sequence[int]) -> None:
        self.move = move
        self.left = deque(enumerate(items))
        self.results: list[Any] = [None] * len(items)

    def take(self) -> None:
        while self.left:
            try:
                place, item = self.left.popleft()
            except IndexError:  # another thread was faster
                return
            self.results[place] = self.move(item)

    def forget(self) -> list[Any]:
        """The results, to which nothing here refers any more."""
        results, self.results = self.results, []
        del self.move
        return results


def _processors() -> int:
    """The number of processors that this process may use; the limit of numpy's own threads is one for these too."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    allowed = os.environ.get("OPENBLAS_NUM_THREADS", "")
    return min(here, int(allowed)) if allowed.isdigit() else here


class Lease:
    """Lends memory to one array, whose base it is, and frees it afterwards. What `free` refers to stays alive."""

    __slots__ = ("__array_interface__", "free")

    def __init__(self, address: Any, shape: tuple[int, ...], dtype: np.dtype[Any], free: Callable[[], object]) -> None:
        """`address`: as in an array interface, a pointer and whether it is read-only."""
        self.free = free
        self.__array_interface__ = {"version": 3, "shape": shape, "typestr": dtype.str, "data": address}

    def __del__(self) -> None:
        self.free()
