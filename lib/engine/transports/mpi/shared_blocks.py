"""Blocks of shared memory for large arrays between processes of one host. The sender copies an array into a block, and
the receiver uses it there: no other copy is made, and nobody waits.

A block is a file without a name (memfd), which the receiver maps through the sender's entry in /proc. Its first page
says whether the receiver still uses it; afterwards the sender writes the next array there, in memory that both have
mapped already. Systems without such files send bytes through MPI.
"""

from __future__ import annotations

import os
from collections import defaultdict
from itertools import count
from mmap import mmap
from typing import Any

import numpy as np
from numpy import asarray

from lib.engine.collectives import Array

PAGE = 4096
"""Bytes before the array, which so begins at a page."""

MIN_BYTES = 1 << 16
"""The smallest block. Sizes are powers of two, so that a block serves for arrays of similar sizes."""

MAX_BLOCKS = 16
"""Blocks of one process. Python's mmap keeps a file open for each, in the sender and in every receiver, and a process
may open about a thousand."""

MAX_BYTES = 1 << 30
"""All blocks of one process; further arrays are sent through MPI."""

IN_USE, DROPPED = range(2)
"""Words of the first page: the receiver has not freed the array yet; the sender will not use the block again."""

_numbers = count(1)


class Block:
    """A block of this process."""

    def __init__(self, size: int) -> None:
        self.number = next(_numbers)
        self.size = size
        self.file = os.memfd_create("array")
        os.ftruncate(self.file, PAGE + size)
        self._memory = mmap(self.file, PAGE + size)
        self._words = memoryview(self._memory)[:PAGE].cast("q")

    def is_free(self) -> bool:
        return not self._words[IN_USE]

    def lend(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """The place for an array, which its receiver will free."""
        self._words[IN_USE] = 1
        return np.ndarray(shape, dtype, self._memory, PAGE)

    def drop(self) -> None:
        self._words[DROPPED] = 1
        os.close(self.file)


class OwnBlocks:
    """The blocks of this process in one run."""

    def __init__(self) -> None:
        self._by_size: dict[int, list[Block]] = defaultdict(list)
        self._count = self._bytes = 0

    def take(self, nbytes: int) -> Block | None:
        """A block that nobody uses; None if there are too many."""
        size = max(MIN_BYTES, 1 << (nbytes - 1).bit_length())
        for block in self._by_size[size]:
            if block.is_free():
                return block
        if self._count == MAX_BLOCKS or self._bytes + size > MAX_BYTES:
            return None
        block = Block(size)
        self._by_size[size].append(block)
        self._count += 1
        self._bytes += size
        return block

    def close(self) -> None:
        """Gives all blocks up. Arrays that receivers still have stay valid."""
        for blocks in self._by_size.values():
            for block in blocks:
                block.drop()
        self._by_size.clear()


class OpenedBlocks:
    """The blocks of another process, on the same host, that this one has mapped."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._opened: dict[int, mmap] = {}
        """By number."""

    def array(self, number: int, file: int, size: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """The array in a block, which belongs to this device; the block is free when nothing refers to it.

        Raises:
            OSError: the sender has ended.
        """
        memory = self._opened.get(number)
        if memory is None:
            self._forget_dropped()
            memory = self._opened[number] = _mapped(self._process, file, size)
        return asarray(_Used(memory, shape, dtype))

    def _forget_dropped(self) -> None:
        kept = {number: memory for number, memory in self._opened.items() if not _words(memory)[DROPPED]}
        self._opened = kept


def _mapped(process: int, file: int, size: int) -> mmap:
    here = os.open(f"/proc/{process}/fd/{file}", os.O_RDWR)
    try:
        return mmap(here, PAGE + size)
    finally:
        os.close(here)


def _words(memory: mmap) -> memoryview:
    return memoryview(memory)[:PAGE].cast("q")


class _Used:
    """Holds a block for one array, whose base it is, and frees it afterwards."""

    __slots__ = ("__array_interface__", "_memory", "_words")

    def __init__(self, memory: mmap, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._memory, self._words = memory, _words(memory)
        address = np.frombuffer(memory, np.uint8, 1, PAGE).__array_interface__["data"]
        self.__array_interface__ = {"version": 3, "shape": shape, "typestr": dtype.str, "data": address}

    def __del__(self) -> None:
        self._words[IN_USE] = 0


def can_be_opened(process: int, file: int, content: bytes) -> bool:
    """True if this process can map the files of another one."""
    try:
        return _mapped(process, file, len(content))[PAGE:] == content
    except OSError:
        return False
