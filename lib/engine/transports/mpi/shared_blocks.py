"""Blocks of shared memory for large arrays between processes of one host. The sender copies an array into a block, and
the receiver uses it there: no other copy is made, and nobody waits.

A block is an anonymous file (memfd), which the receiver maps through the sender's entry in /proc. Its first page says
whether the receiver still uses it; afterwards the sender writes the next array there, in memory that both have mapped
already. Systems without such files send bytes through MPI.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from contextlib import suppress
from functools import partial
from itertools import count
from mmap import mmap
from typing import Any

import numpy as np
from numpy import asarray, frombuffer  # by name: a metered run counts what players make

from lib.engine.collectives import Array
from lib.engine.transports.reused_memory import Lease

PAGE = 4096
"""Bytes before the array, which so begins at a page."""

MIN_BYTES = 1 << 16
"""The smallest block. Sizes are powers of two, so that a block serves for arrays of similar sizes."""

MAX_BLOCKS = 16
"""Blocks of this process. Each keeps files open, in every receiver too, and a process may open about a thousand."""

MAX_BYTES = 1 << 30
"""All blocks of this process; further arrays are sent through MPI."""

IN_USE, DROPPED = range(2)
"""Words of the first page: the receiver has not freed the array yet; the sender will not use the block again."""

_numbers = count(1)


class Block:
    """A block of this process.

    Raises:
        OSError: the system has no more files or memory.
    """

    def __init__(self, size: int) -> None:
        self.number = next(_numbers)
        self.size = size
        self.file = os.memfd_create(_name(self.number))
        try:
            os.ftruncate(self.file, PAGE + size)
            self._memory = _mapped(self.file, size)
        except BaseException:
            os.close(self.file)
            raise
        self._words = _words(self._memory)

    def is_free(self) -> bool:
        return not self._words[IN_USE]

    def lend(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """The place for an array, which its receiver will free."""
        self._words[IN_USE] = 1
        return np.ndarray(shape, dtype, self._memory, PAGE)

    def drop(self) -> None:
        """Gives the block up. An array that the receiver still has stays valid."""
        self._words[DROPPED] = 1
        os.close(self.file)


class OwnBlocks:
    """The blocks of this process in one run. The limits are for all runs together."""

    count = bytes = 0

    def __init__(self) -> None:
        self._by_size: dict[int, list[Block]] = defaultdict(list)

    def take(self, nbytes: int) -> Block | None:
        """A block that nobody uses; None if there are too many in use."""
        size = max(MIN_BYTES, 1 << (nbytes - 1).bit_length())
        for block in self._by_size[size]:
            if block.is_free():
                return block
        free = [block for blocks in self._by_size.values() for block in blocks if block.is_free()]
        while free and not self._has_room(size):
            self._drop(free.pop())
        if self._has_room(size):
            with suppress(OSError):
                self._by_size[size].append(Block(size))
                OwnBlocks.count += 1
                OwnBlocks.bytes += size
                return self._by_size[size][-1]
        return None

    def _has_room(self, size: int) -> bool:
        return OwnBlocks.count < MAX_BLOCKS and OwnBlocks.bytes + size <= MAX_BYTES

    def _drop(self, block: Block) -> None:
        self._by_size[block.size].remove(block)
        OwnBlocks.count -= 1
        OwnBlocks.bytes -= block.size
        block.drop()

    def close(self) -> None:
        """Gives all blocks up."""
        for block in [block for blocks in self._by_size.values() for block in blocks]:
            self._drop(block)


class OpenedBlocks:
    """The blocks of another process, on the same host, that this one has mapped."""

    def __init__(self, process: int) -> None:
        self._process = process
        self._opened: dict[int, mmap] = {}
        """By number."""

    def array(self, number: int, file: int, size: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """The array in a block, which belongs to this device; the block is free when nothing refers to it.

        Raises:
            FileNotFoundError: the sender has given the block up.
            OSError: the system has no more files or memory.
        """
        memory = self._opened.get(number)
        if memory is None:
            self._opened = {n: opened for n, opened in self._opened.items() if not _words(opened)[DROPPED]}
            memory = self._opened[number] = _opened(self._process, file, _name(number), size)
        address = frombuffer(memory, np.uint8, 1, PAGE).__array_interface__["data"]
        return asarray(Lease(address, shape, dtype, partial(_set_free, _words(memory))))


def _set_free(words: memoryview) -> None:
    words[IN_USE] = 0


def _name(number: int) -> str:
    return f"array-{number}"


def _opened(process: int, file: int, name: str, size: int) -> mmap:
    """The memory of another process's anonymous file of this name: the number may be that of another file by now."""
    here = os.open(f"/proc/{process}/fd/{file}", os.O_RDWR)
    try:
        if f"/memfd:{name} (deleted)" != os.readlink(f"/proc/self/fd/{here}"):
            raise FileNotFoundError(f"process {process} has closed {name}")
        return _mapped(here, size)
    finally:
        os.close(here)


def _mapped(file: int, size: int) -> mmap:
    if sys.version_info >= (3, 13):
        return mmap(file, PAGE + size, trackfd=False)  # otherwise it keeps another file open
    return mmap(file, PAGE + size)


def _words(memory: mmap) -> memoryview:
    return memoryview(memory)[:PAGE].cast("q")


def open_to_others(content: bytes) -> int | None:
    """An anonymous file by which other processes can find out whether they can open this one's; None if there are no
    such files."""
    try:
        file = os.memfd_create(_name(0))
        os.write(file, bytes(PAGE) + content)
    except (AttributeError, OSError):
        return None
    return file


def can_be_opened(process: int, file: int | None, content: bytes) -> bool:
    """True if this process can map that file of another one."""
    try:
        return file is not None and _opened(process, file, _name(0), len(content))[PAGE:] == content
    except (OSError, ValueError):
        return False
