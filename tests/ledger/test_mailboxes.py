"""A mailbox is a queue for each pair of ranks and tag; a bounded one holds one unread message."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.ledger.meetings import Mailboxes
from tests.support.examples import examples

RANKS = 2

ranks = st.integers(0, RANKS - 1)


tags = st.integers(0, 2)


@examples(200)
@given(st.lists(st.tuples(ranks, ranks, tags, st.booleans()), min_size=10))
def test_every_pair_of_ranks_has_a_queue_for_each_tag(steps: list[tuple[int, int, int, bool]]) -> None:
    boxes: Mailboxes[int] = Mailboxes(RANKS, bounded=False)
    everything = list(product(range(RANKS), range(RANKS), range(3)))
    queues: dict[tuple[int, int, int], list[int]] = {place: [] for place in everything}
    for message, (source, to, tag, take) in enumerate(steps):
        queue = queues[source, to, tag]
        if take and queue:
            assert boxes.take(source, to, tag) == queue.pop(0)
        else:
            boxes.put(source, to, message, tag)
            queue.append(message)
        assert boxes.first(source, to, tag) == (queue[0] if queue else None)
    for at in range(RANKS):
        unread = [
            (source, tag, message) for source, to, tag in everything if to == at for message in queues[source, to, tag]
        ]
        assert list(boxes.unread(at)) == [(source, message) for source, _, message in unread]
        assert list(boxes.unread(at, 1)) == [(source, message) for source, tag, message in unread if tag == 1]


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
    everything = product(range(RANKS), range(RANKS), range(3))
    assert [place for place in everything if boxes.full(*place)] == [(0, 1, 0)]


def test_an_unbounded_mailbox_is_never_full() -> None:
    boxes: Mailboxes[str] = Mailboxes(2, bounded=False)
    for message in "abc":
        boxes.put(0, 1, message)
    assert not boxes.full(0, 1)


def test_nothing_to_take_before_the_first_message() -> None:
    with pytest.raises(LookupError):
        Mailboxes[str](2).take(0, 1)
