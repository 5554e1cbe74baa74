"""A collective is complete with its last rank, starts at the latest clock, and gives each rank its own result."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lib import MismatchError, Value, WeightGrad
from lib.ledger.lanes import Lanes
from lib.ledger.meetings import Call, Meetings, require_same_call
from lib.ledger.setting import Game
from lib.ledger.trace import Op
from tests.support.examples import examples
from tests.support.refusals import Refused

GAME = Game(layers=2, batches=4, ranks=4)

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
    lanes = NotedLanes(replace(GAME, ranks=len(clocks)), len(clocks))
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
