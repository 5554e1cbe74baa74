"""Meetings, mailboxes and the walk over them: who starts when, and who waits for ever."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import MismatchError, Value, WeightGrad
from lib.ledger.lanes import Cursor, Lanes, Walk
from lib.ledger.meetings import Call, Mailboxes, Meetings, require_same_call
from lib.ledger.setting import Game
from lib.ledger.trace import Op
from tests.support.examples import examples
from tests.support.refusals import Refused

# === A collective is complete with its last rank ===


GAME_OF_FOUR = Game(layers=2, batches=4, ranks=4)

LAYERS, BATCHES = 2, 4

members = st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True)


def gradient(rank: int, layer: int = 0) -> WeightGrad:
    return WeightGrad(layer, LAYERS, {rank % BATCHES}, BATCHES)


def calling(rank: int, clock: int, name: str, value: Value, group: tuple[int, ...] | None = None) -> Call:
    op = Op(name, clock, clock, value.layer, line=10 + rank)
    call = Call(rank, 0, clock, None, op, group, (value,))
    assert call.ready()
    return call


def reducing(
    rank: int, clock: int = 0, name: str = "allreduce", layer: int = 0, group: tuple[int, ...] | None = None
) -> Call:
    return calling(rank, clock, name, gradient(rank, layer), group)


def arriving(rank: int, group: list[int]) -> Call:
    return reducing(rank, group=tuple(sorted(group)))


@examples(100)
@given(members, st.data())
def test_the_last_to_come_gets_all_calls_in_the_order_of_the_members(group: list[int], data: st.DataObject) -> None:
    meetings = Meetings(10)
    for _ in range(2):  # the next meeting opens by itself
        calls = [arriving(rank, group) for rank in data.draw(st.permutations(group))]
        answers = [meetings.arrive(call) for call in calls]
        assert answers == [()] * (len(group) - 1) + [sorted(calls, key=lambda call: call.rank)]


@examples(100)
@given(members, st.lists(st.tuples(st.integers(0, 9), st.booleans())))
def test_every_member_is_present_or_missing(group: list[int], steps: list[tuple[int, bool]]) -> None:
    meetings, here = Meetings(10), dict[int, Call]()
    for rank, comes in steps:
        if rank not in group:
            continue
        if comes and len({*here, rank}) < len(group):
            here[rank] = arriving(rank, group)
            meetings.arrive(here[rank])
        elif not comes and rank in here:
            meetings.withdraw(here.pop(rank))
    assert meetings.pending() == ([[here[rank] for rank in sorted(here)]] if here else [])
    assert meetings.missing(tuple(sorted(group))) == tuple(rank for rank in sorted(group) if rank not in here)


def test_a_call_that_is_over_takes_no_later_one_back() -> None:
    meetings, over, later = Meetings(2), reducing(0), reducing(0)
    meetings.arrive(later)
    meetings.withdraw(over)
    assert meetings.pending() == [[later]]


class NotedLanes(Lanes[int]):
    """Notes the calls that are settled, in order."""

    def __init__(self, game: Game, ranks: int) -> None:
        super().__init__(game, ranks)
        self.settled: list[Call] = []

    def settle(self, call: Call) -> None:
        self.settled.append(call)


@examples(100)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=BATCHES))
def test_a_collective_starts_when_its_last_rank_is_ready(clocks: list[int]) -> None:
    lanes = NotedLanes(replace(GAME_OF_FOUR, ranks=len(clocks)), len(clocks))
    calls = [reducing(rank, clock) for rank, clock in enumerate(clocks)]
    for call in calls:
        assert lanes.settled == []
        lanes.issue(call)
    assert lanes.settled == calls
    assert {call.start for call in calls} == {sorted(clocks)[-1]}


def test_ranks_that_differ_before_all_have_come() -> None:
    with Refused(
        "other calls",
        first="rank 1 calls allreduce(layer=0)",
        other="rank 3 calls allreduce(layer=1)",
        error=MismatchError,
    ):
        require_same_call([reducing(1), reducing(3, layer=1)])


def test_nobody_there_to_disagree() -> None:
    require_same_call([])


def test_every_group_has_meetings_of_its_own() -> None:
    meetings = Meetings(4)
    a, b, c = reducing(0, group=(0, 1)), reducing(0, group=(0, 2)), reducing(3)
    assert [meetings.arrive(call) for call in (a, b, c)] == [(), (), ()]
    assert meetings.pending() == [[a], [b], [c]]
    d, following = reducing(1, group=(0, 1)), reducing(1, group=(0, 1))
    assert meetings.arrive(d) == [a, d]
    assert meetings.arrive(following) == ()
    assert meetings.missing((0, 1)) == (0,)
    assert meetings.missing(None) == (0, 1, 2)


# === A mailbox is a queue for each pair of ranks and tag ===


TWO_RANKS = 2

ranks = st.integers(0, TWO_RANKS - 1)


tags = st.integers(0, 2)


@examples(200)
@given(st.lists(st.tuples(ranks, ranks, tags, st.booleans()), min_size=10))
def test_every_pair_of_ranks_has_a_queue_for_each_tag(steps: list[tuple[int, int, int, bool]]) -> None:
    boxes: Mailboxes[int] = Mailboxes(TWO_RANKS, bounded=False)
    everything = list(product(range(TWO_RANKS), range(TWO_RANKS), range(3)))
    queues: dict[tuple[int, int, int], list[int]] = {place: [] for place in everything}
    for message, (source, to, tag, take) in enumerate(steps):
        queue = queues[source, to, tag]
        if take and queue:
            assert boxes.take(source, to, tag) == queue.pop(0)
        else:
            boxes.put(source, to, message, tag)
            queue.append(message)
        assert boxes.first(source, to, tag) == (queue[0] if queue else None)
    for at in range(TWO_RANKS):
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
    boxes: Mailboxes[str] = Mailboxes(TWO_RANKS)
    boxes.put(0, 1, "message")
    everything = product(range(TWO_RANKS), range(TWO_RANKS), range(3))
    assert [place for place in everything if boxes.full(*place)] == [(0, 1, 0)]


def test_an_unbounded_mailbox_is_never_full() -> None:
    boxes: Mailboxes[str] = Mailboxes(2, bounded=False)
    for message in "abc":
        boxes.put(0, 1, message)
    assert not boxes.full(0, 1)


def test_nothing_to_take_before_the_first_message() -> None:
    with pytest.raises(LookupError):
        Mailboxes[str](2).take(0, 1)


# === A walk visits whatever could have happened, in an order in which it could have ===


RANKS = 3

GAME = Game(layers=1, batches=1, ranks=RANKS)

Step = tuple[str, int, int]
"""A moment of an imagined run: "alone" of a rank, "meet" of all, "pass_to" or "receive" from one rank to another."""

steps = st.lists(
    st.tuples(
        st.sampled_from(["alone", "meet", "pass_to", "pass_to", "receive", "receive"]),
        st.integers(0, RANKS - 1),
        st.integers(0, RANKS - 1),
    ),
    min_size=10,
    max_size=40,
)


class Diary(Walk[Cursor]):
    """Notes every visit: the rank and the index there; of a receive, also those of its message."""

    def __init__(self, ranks: Sequence[Sequence[Op]], buffered: bool = False) -> None:
        super().__init__(GAME, [Cursor(rank, ops) for rank, ops in enumerate(ranks)], buffered)
        self.visits: list[tuple[int, int]] = []
        self.messages: dict[tuple[int, int], tuple[int, int]] = {}
        """By rank and index of a receive: those of the `pass_to`."""
        self.met_with: list[list[int]] = []
        self.stuck = [cursor.rank for cursor in self.walk()]

    def note(self, cursor: Cursor) -> None:
        self.visits.append((cursor.rank, cursor.at))

    def on_local(self, cursor: Cursor, op: Op) -> None:
        self.note(cursor)

    def on_call(self, cursor: Cursor, op: Op) -> Call:
        return self.call(cursor, op, None, ())

    def perform(self, calls: Sequence[Call]) -> Sequence[tuple[Any, ...]]:
        self.met_with.append([call.rank for call in calls])
        return [(f"for rank {call.rank}",) for call in calls]

    def ticks(self, calls: Sequence[Call], outputs: Sequence[tuple[Any, ...]]) -> int:
        return 0

    def on_end(self, cursor: Cursor, call: Call) -> None:
        assert (call.op, call.outputs) == (cursor.op, (f"for rank {cursor.rank}",) if call.name != "pass_to" else ())
        self.note(cursor)

    def on_receive(self, cursor: Cursor, op: Op, sender: Cursor, sent_at: int) -> None:
        assert (sender.rank, sent_at) in self.visits
        self.messages[cursor.rank, cursor.at] = (sender.rank, sent_at)
        self.note(cursor)


def alone() -> Op:
    return Op("forward", 0, 0)


def meet() -> Op:
    return Op("allreduce", 0, 0)


def send(to: int) -> Op:
    return Op("pass_to", 0, 0, args=(to,))


def receive(source: int) -> Op:
    return Op("receive", 0, 0, args=(source,))


class Imagined:
    """A run that chance makes up in one order, as each rank alone would have recorded it."""

    def __init__(self, picked: Sequence[Step], buffered: bool) -> None:
        self.ranks: list[list[Op]] = [[] for _ in range(RANKS)]
        self.messages: dict[tuple[int, int], tuple[int, int]] = {}
        unread: dict[tuple[int, int], list[int]] = {}
        for name, a, b in picked:
            box = unread.setdefault((a, b), [])
            if name == "alone":
                self.ranks[a].append(alone())
            elif name == "meet":
                for ops in self.ranks:
                    ops.append(meet())
            elif name == "pass_to" and (buffered or not box):
                box.append(len(self.ranks[a]))
                self.ranks[a].append(send(b))
            elif name == "receive" and box:
                self.messages[b, len(self.ranks[b])] = (a, box.pop(0))
                self.ranks[b].append(receive(a))


@examples(300)
@given(steps, st.booleans())
def test_what_could_happen_is_visited_to_the_end(picked: list[Step], buffered: bool) -> None:
    imagined = Imagined(picked, buffered)
    diary = Diary(imagined.ranks, buffered)
    by_rank = [[at for visited, at in diary.visits if visited == rank] for rank in range(RANKS)]
    assert (diary.stuck, by_rank, diary.messages) == (
        [],
        [list(range(len(ops))) for ops in imagined.ranks],
        imagined.messages,
    )


@examples(100)
@given(steps)
def test_all_ranks_meet_in_rank_order(picked: list[Step]) -> None:
    meetings = sum(name == "meet" for name, _, _ in picked)
    assert Diary(Imagined(picked, False).ranks).met_with == [list(range(RANKS))] * meetings


@examples(100)
@given(steps, st.integers(0, RANKS - 1))
def test_nothing_after_a_wait_for_ever_is_visited(picked: list[Step], victim: int) -> None:
    ranks = Imagined(picked, True).ranks
    ranks[victim].insert(0, receive(victim))
    diary = Diary(ranks, buffered=True)
    assert (victim in diary.stuck, victim in dict(diary.visits)) == (True, False)


def test_a_message_that_nobody_sends() -> None:
    assert Diary([[receive(1)], [alone()]]).stuck == [0]


def test_a_collective_that_one_rank_never_joins() -> None:
    assert Diary([[meet()], [meet()], [alone()]]).stuck == [0, 1]


def test_two_receives_that_wait_for_each_other() -> None:
    assert Diary([[receive(1), send(1)], [receive(0), send(0)]]).stuck == [0, 1]


def test_a_sender_that_waits_for_room_goes_on_when_its_message_is_read() -> None:
    ranks = [[send(1), send(1), alone()], [receive(0), receive(0)]]
    assert Diary(ranks).visits == [(0, 0), (1, 0), (0, 1), (0, 2), (1, 1)]


CROSSED = [[send(1), send(1), receive(1)], [send(0), send(0), receive(0)]]


def test_two_senders_that_wait_for_room_at_each_other() -> None:
    assert Diary(CROSSED).stuck == [0, 1]


def test_a_buffer_for_every_message_lets_both_senders_go_on() -> None:
    assert Diary(CROSSED, buffered=True).stuck == []
