"""Rings of small messages in shared memory, and how a large array finds its receiver waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mpi4py", reason="needs mpi4py and an MPI: pip install 'training-puzzles[mpi]'")

from lib.engine.transports.mpi.headers import HEADER_BYTES
from lib.engine.transports.mpi.ring import RING_BYTES, SLOTS, Ring


class OneProcess:
    """Shared memory of a process with itself, which needs no ordering."""

    def sync(self) -> None:
        """Nothing to order."""


def both_ends() -> tuple[Ring, Ring]:
    host: Any = OneProcess()
    memory = np.zeros(RING_BYTES, np.uint8)
    return Ring(host, memory), Ring(host, memory)


def test_messages_keep_their_order_form_and_clock() -> None:
    writer, reader = both_ends()
    sent = [np.float32(3) * np.ones(()), np.arange(6, dtype=">i2").reshape(2, 3).T, np.zeros((0, 4), bool)]
    for turn in range(5):
        for i, array in enumerate(sent, 3 * turn + 1):
            assert not reader.has(i)
            assert writer.write(i, array, clock=10 * i)
        for i, array in enumerate(sent, 3 * turn + 1):
            assert reader.has(i)
            clock, got = reader.read()
            assert (clock, got.shape, got.dtype) == (10 * i, array.shape, array.dtype)
            assert np.array_equal(got, array)
            assert got.base is None and got.flags.writeable


def test_a_full_ring_takes_no_more_until_a_message_has_been_read() -> None:
    writer, reader = both_ends()
    small = np.ones(3)
    assert [writer.write(i, small, 0) for i in range(1, SLOTS + 2)] == [True] * SLOTS + [False]
    reader.read()
    assert writer.write(SLOTS + 2, small, 0)  # the message between them went another way
    for _ in range(SLOTS - 1):
        reader.read()
    assert not reader.has(SLOTS + 1)
    assert reader.has(SLOTS + 2)


def test_a_large_array_does_not_go_through_a_ring_and_disturbs_no_message_in_it() -> None:
    writer, reader = both_ends()
    assert writer.write(1, np.arange(5), 7)
    assert not writer.write(2, np.zeros(HEADER_BYTES, np.uint8), 0)
    assert [writer.write(i, np.full(i, i), 0) for i in range(3, 3 + SLOTS)] == [True] * (SLOTS - 1) + [False]
    assert reader.read()[1].tolist() == [0, 1, 2, 3, 4]
    assert reader.read()[1].tolist() == [3, 3, 3]


def test_a_message_is_claimed_only_while_the_reader_wants_it() -> None:
    writer, reader = both_ends()
    assert not writer.claim(1)
    reader.want(1)
    assert writer.claim(1)
    assert not reader.no_longer_wants(1)  # it has to wait: the writer sends
    assert not writer.claim(2)
    reader.want(2)
    assert reader.no_longer_wants(2)
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
            greenlet(lambda reader=reader: (reader.want(5), reader.no_longer_wants(5))[1]),
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
