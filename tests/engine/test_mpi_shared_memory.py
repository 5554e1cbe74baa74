"""Shared memory of the processes of a host: places, rings of headers, and blocks for large arrays."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lib.engine.transports.mpi import shared_blocks
from lib.engine.transports.mpi.headers import CLOCK, HEADER_BYTES
from lib.engine.transports.mpi.ring import RING_BYTES, SLOTS, Ring
from lib.engine.transports.mpi.shared_blocks import (
    MAX_BLOCKS,
    MIN_BYTES,
    OpenedBlocks,
    OwnBlocks,
    can_be_opened,
    open_to_others,
)
from lib.engine.transports.mpi.shared_memory import CACHE_LINE, NOWHERE, HostMemory


def own_memory(nbytes: int) -> HostMemory:
    """Memory that a process shares with itself, which needs no ordering."""
    return HostMemory(3, {3: np.full(nbytes, 7, np.uint8)})


def test_places_are_apart_and_cleared_and_come_back() -> None:
    host = own_memory(10 * CACHE_LINE)
    offsets = [host.lend(nbytes) for nbytes in (1, CACHE_LINE, CACHE_LINE + 1, 3 * CACHE_LINE)]
    assert offsets == [0, CACHE_LINE, 2 * CACHE_LINE, 4 * CACHE_LINE]
    host.place(3, offsets[2], CACHE_LINE + 1)[:] = 1
    assert host.lend(4 * CACHE_LINE) == NOWHERE
    assert host.lend(2 * CACHE_LINE) == 7 * CACHE_LINE
    host.give_back(offsets[2], CACHE_LINE + 1)
    host.give_back(NOWHERE, 1)
    assert host.lend(2 * CACHE_LINE) == offsets[2]
    assert not host.place(3, offsets[2], 2 * CACHE_LINE).any()


def test_a_host_without_shared_memory_lends_nothing() -> None:
    host = HostMemory(0, {})
    assert host.lend(8) == NOWHERE
    assert not host.sees([0])
    assert own_memory(64).sees([3])
    assert not own_memory(64).sees([3, 2])


def both_ends() -> tuple[Ring, Ring]:
    host, memory = own_memory(RING_BYTES), np.zeros(RING_BYTES, np.uint8)
    return Ring(host, memory), Ring(host, memory)


def test_messages_keep_their_order_form_and_clock() -> None:
    writer, reader = both_ends()
    sent = [np.float32(3) * np.ones(()), np.arange(6, dtype=">i2").reshape(2, 3).T, np.zeros((0, 4), bool)]
    for turn in range(5):
        for i, array in enumerate(sent, 3 * turn + 1):
            assert reader.next(i) is None
            assert writer.write(i, array, clock=10 * i)
        for i, array in enumerate(sent, 3 * turn + 1):
            header = reader.next(i)
            assert header is not None
            assert header.read().shape == array.shape
            assert header.content is not None
            assert (header.words[CLOCK], header.content.dtype) == (10 * i, array.dtype)
            assert np.array_equal(header.content, array)
            reader.pass_on()


def written(writer: Ring, numbers: range, array: Any) -> list[bool]:
    return [writer.write(i, array, 0) is not None for i in numbers]


def read(reader: Ring, number: int) -> Any:
    """The array of the next message; None if it is large."""
    header = reader.next(number)
    assert header is not None
    header.read()
    array = None if header.content is None else header.content.copy()
    reader.pass_on()
    return array


def test_a_full_ring_takes_no_more_until_a_message_has_been_read() -> None:
    writer, reader = both_ends()
    small = np.ones(3)
    assert written(writer, range(1, SLOTS + 2), small) == [True] * SLOTS + [False]
    writer.announce_elsewhere(SLOTS + 1)
    read(reader, 1)
    assert writer.write(SLOTS + 2, small, 0)
    for i in range(2, SLOTS + 1):
        read(reader, i)
    assert reader.next(SLOTS + 1) is None
    assert reader.is_elsewhere(SLOTS + 1)
    assert not reader.is_elsewhere(SLOTS + 2)
    read(reader, SLOTS + 2)


def test_of_a_large_array_only_the_form_goes_through_a_ring() -> None:
    writer, reader = both_ends()
    large = np.zeros((3, HEADER_BYTES), np.uint8)
    for number in range(1, 20, 3):
        writer.write(number, np.arange(5), 7)
        header = writer.write(number + 1, large, 0)
        assert header is not None
        assert header.content is None
        writer.write(number + 2, np.arange(3), 7)
        assert read(reader, number).tolist() == [0, 1, 2, 3, 4]
        header = reader.next(number + 1)
        assert header is not None
        assert header.read().shape == large.shape
        assert header.content is None
        reader.pass_on()
        assert read(reader, number + 2).tolist() == [0, 1, 2]


needs_files = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="only Linux has files without a name")


@pytest.fixture
def own() -> Iterator[OwnBlocks]:
    blocks = OwnBlocks()
    yield blocks
    blocks.close()


def sent(own: OwnBlocks, opened: OpenedBlocks, array: Any) -> Any:
    """What the receiver of an array gets, in the same process."""
    block = own.take(array.nbytes)
    assert block is not None
    block.lend(array.shape, array.dtype)[...] = array
    return opened.array(block.number, block.file, block.size, array.shape, array.dtype)


def place_of(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


@needs_files
def test_a_receiver_uses_an_array_in_its_block_until_nothing_refers_to_it(own: OwnBlocks) -> None:
    opened = OpenedBlocks(os.getpid())
    array = np.arange(30_000, dtype=">f8").reshape(100, 300).T
    got = sent(own, opened, array)
    assert (got.shape, got.dtype, got.flags.c_contiguous) == (array.shape, array.dtype, True)
    assert np.array_equal(got, array)
    view, other = got[7:], sent(own, opened, array + 1)
    got += 5  # it belongs to the receiver
    del got
    gc.collect()
    assert np.array_equal(view, array[7:] + 5)
    assert np.array_equal(other, array + 1)
    places = {place_of(view) - view.strides[0] * 7, place_of(other)}
    del view, other
    gc.collect()
    files = len(os.listdir("/proc/self/fd"))
    third, fourth = sent(own, opened, array), sent(own, opened, array[:, ::2])
    assert place_of(third) in places  # its memory is used again
    assert place_of(fourth) not in places
    more = 1 if sys.version_info >= (3, 13) else 3  # before 3.13 a mapping keeps a file open too
    assert len(os.listdir("/proc/self/fd")) == files + more  # the fourth is smaller, and has a block of its own


@needs_files
def test_there_are_blocks_for_so_many_arrays_and_bytes_at_a_time(own: OwnBlocks, monkeypatch: Any) -> None:
    opened = OpenedBlocks(os.getpid())
    held = [sent(own, opened, np.full(3, i)) for i in range(MAX_BLOCKS)]
    assert own.take(24) is None
    assert [int(array[0]) for array in held] == list(range(MAX_BLOCKS))
    other = OwnBlocks()
    assert other.take(24) is None  # the limits are those of the process
    del held[5]
    gc.collect()
    assert sent(own, opened, np.zeros(MIN_BYTES, np.uint8)).size == MIN_BYTES
    own.close()
    assert len(held) == MAX_BLOCKS - 1
    monkeypatch.setattr(shared_blocks, "MAX_BYTES", 4 * MIN_BYTES)
    assert other.take(5 * MIN_BYTES) is None
    large = sent(other, opened, np.zeros(3 * MIN_BYTES, np.uint8))
    assert other.take(1) is None
    del large
    gc.collect()
    assert [sent(other, opened, np.full(1, i)).tolist() for i in range(2)] == [[0], [1]]  # in place of the large one
    other.close()
    assert OwnBlocks.count == OwnBlocks.bytes == 0


@needs_files
def test_a_system_without_files_left_has_no_blocks(own: OwnBlocks, monkeypatch: Any) -> None:
    def none_left(*_: Any, **__: Any) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", none_left)
    assert own.take(8) is None
    monkeypatch.undo()
    block = own.take(8)
    assert block is not None
    monkeypatch.setattr(shared_blocks, "mmap", none_left)
    files = os.listdir("/proc/self/fd")
    assert own.take(1 << 20) is None
    assert os.listdir("/proc/self/fd") == files


@needs_files
def test_a_file_that_took_the_number_of_a_block_is_not_touched(tmp_path: Path) -> None:
    own, opened = OwnBlocks(), OpenedBlocks(os.getpid())
    block = own.take(8)
    assert block is not None
    own.close()
    (tmp_path / "own.txt").write_bytes(b"x" * 100_000)
    with (tmp_path / "own.txt").open("r+b") as another:
        if another.fileno() != block.file:
            os.dup2(another.fileno(), block.file)
        with pytest.raises(FileNotFoundError, match=f"process {os.getpid()} has closed array-{block.number}"):
            opened.array(block.number, block.file, block.size, (3,), np.dtype("int8"))
        assert not can_be_opened(os.getpid(), block.file, b"content")
        if another.fileno() != block.file:
            os.close(block.file)
    assert (tmp_path / "own.txt").read_bytes() == b"x" * 100_000


@needs_files
def test_arrays_outlive_the_run_that_sent_them_and_new_blocks_replace_its_own() -> None:
    opened, array = OpenedBlocks(os.getpid()), np.arange(100)
    first = OwnBlocks()
    got = sent(first, opened, array)
    number, file = next(iter(opened._opened)), first.take(1)
    assert file is not None
    first.close()
    second = OwnBlocks()
    later = sent(second, opened, array + 1)  # the system may give its file the same number
    assert list(opened._opened) != [number]
    assert len(opened._opened) == 1
    assert np.array_equal(got, array)
    assert np.array_equal(later, array + 1)
    second.close()
    with pytest.raises(FileNotFoundError):
        OpenedBlocks(os.getpid()).array(0, file.file, 64, (1,), array.dtype)


@needs_files
def test_processes_find_out_whether_they_can_open_each_others_files() -> None:
    file = open_to_others(b"content")
    assert file is not None
    assert can_be_opened(os.getpid(), file, b"content")
    assert not can_be_opened(os.getpid(), file, b"another")  # of a process of the same number in another container
    assert not can_be_opened(os.getpid(), file, bytes(10_000))
    assert not can_be_opened(os.getpid(), None, b"content")
    os.close(file)
    assert not can_be_opened(os.getpid(), file, b"content")
