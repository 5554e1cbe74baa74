"""A walk visits whatever could have happened, in an order in which it could have; the rest waits for ever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lib.ledger.lanes import Cursor, Walk
from lib.ledger.meetings import Call
from lib.ledger.setting import Game
from lib.ledger.trace import Op
from tests.support.examples import examples

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
