"""Places and rings in shared memory, and how a large array finds its receiver waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np

from lib.engine.transports.mpi.headers import CLOCK, HEADER_BYTES
from lib.engine.transports.mpi.ring import RING_BYTES, SLOTS, Ring
from lib.engine.transports.mpi.shared_memory import CACHE_LINE, NOWHERE, HostMemory


def own_memory(nbytes: int) -> HostMemory:
    """Memory that a process shares with itself, which needs no ordering."""
    return HostMemory(3, {3: np.full(nbytes, 7, np.uint8)}, lambda: None)


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
    host = HostMemory(0, {}, lambda: None)
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
    writer.send_elsewhere(SLOTS + 1)
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


def test_a_message_is_claimed_only_while_the_reader_wants_it() -> None:
    writer, reader = both_ends()
    assert not writer.claim(1)
    reader.want(1)
    assert writer.claim(1)
    assert reader.is_claimed(1)
    reader.want(0)
    assert not writer.claim(2)
    reader.want(2)
    reader.want(0)
    assert not reader.is_claimed(2)
    assert not writer.claim(2)


class Stepped:
    """A ring's words, whose every access waits for its turn; so two ends can be run in all orders."""

    def __init__(self, words: Any, step: Callable[[], None]) -> None:
        self.words, self.step = words, step

    def __getitem__(self, i: int) -> int:
        self.step()
        return int(self.words[i])

    def __setitem__(self, i: int, value: int) -> None:
        self.step()
        self.words[i] = value


def interleavings(first: int, second: int) -> Iterator[list[int]]:
    for places in combinations(range(first + second), first):
        yield [0 if i in places else 1 for i in range(first + second)]


def test_in_every_order_a_writer_that_does_not_copy_has_a_reader_that_waits() -> None:
    """The reader wants a message and gives it up, the writer claims it: no order of their reads and writes leaves a
    writer that sends without a copy and a reader that has gone on."""
    from greenlet import greenlet

    outcomes = set()
    for order in interleavings(3, 4):
        writer, reader = both_ends()
        hub = greenlet.getcurrent()
        for end in (writer, reader):
            end._of_reader = Stepped(end._of_reader, hub.switch)  # type: ignore[assignment]
            end._of_writer = Stepped(end._of_writer, hub.switch)  # type: ignore[assignment]
        tasks: list[Any] = [
            greenlet(lambda reader=reader: [reader.want(5), reader.want(0), not reader.is_claimed(5)][-1]),
            greenlet(lambda writer=writer: writer.claim(5)),
        ]
        results: list[Any] = [None, None]
        for who in [0, 1, *order, *[0, 1] * 5]:
            if not tasks[who].dead:
                results[who] = tasks[who].switch()
        assert all(task.dead for task in tasks)
        has_gone_on, sends_without_copy = results
        assert not (has_gone_on and sends_without_copy), order
        outcomes.add((has_gone_on, sends_without_copy))
    assert {(True, False), (False, True)} <= outcomes
