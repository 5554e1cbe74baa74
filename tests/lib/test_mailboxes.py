"""A mailbox is a queue for each pair of ranks; a bounded one holds one unread message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.mailboxes import Mailboxes
from tests.support.examples import examples

RANKS = 2

ranks = st.integers(0, RANKS - 1)


@examples(200)
@given(st.lists(st.tuples(ranks, ranks, st.booleans()), min_size=10))
def test_every_pair_of_ranks_has_a_queue_of_its_own(steps: list[tuple[int, int, bool]]) -> None:
    boxes: Mailboxes[int] = Mailboxes(RANKS, bounded=False)
    queues: dict[tuple[int, int], list[int]] = {(a, b): [] for a in range(RANKS) for b in range(RANKS)}
    for message, (source, to, take) in enumerate(steps):
        queue = queues[source, to]
        if take and queue:
            assert boxes.take(source, to) == queue.pop(0)
        else:
            boxes.put(source, to, message)
            queue.append(message)
        assert boxes.first(source, to) == (queue[0] if queue else None)
    assert [list(boxes.unread(to)) for to in range(RANKS)] == [
        [(source, message) for source in range(RANKS) for message in queues[source, to]] for to in range(RANKS)
    ]


def test_a_bounded_mailbox_is_full_until_its_message_is_taken() -> None:
    boxes: Mailboxes[str] = Mailboxes(2)
    full = [boxes.full(0, 1)]
    boxes.put(0, 1, "first")
    full.append(boxes.full(0, 1))
    boxes.take(0, 1)
    full.append(boxes.full(0, 1))
    assert full == [False, True, False]


def test_a_full_mailbox_leaves_room_in_all_others() -> None:
    boxes: Mailboxes[str] = Mailboxes(RANKS)
    boxes.put(0, 1, "message")
    assert [(a, b) for a in range(RANKS) for b in range(RANKS) if boxes.full(a, b)] == [(0, 1)]


def test_an_unbounded_mailbox_is_never_full() -> None:
    boxes: Mailboxes[str] = Mailboxes(2, bounded=False)
    for message in "abc":
        boxes.put(0, 1, message)
    assert not boxes.full(0, 1)


def test_nothing_to_take_before_the_first_message() -> None:
    with pytest.raises(LookupError):
        Mailboxes[str](2).take(0, 1)


def test_nothing_to_take_twice() -> None:
    boxes: Mailboxes[str] = Mailboxes(2)
    boxes.put(0, 1, "message")
    boxes.take(0, 1)
    with pytest.raises(LookupError):
        boxes.take(0, 1)
