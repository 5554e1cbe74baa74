"""Refuses a trace in which ranks wait for ever: calls that differ, or a deadlock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from lib.communication.deadlock_text import WaitingRank, deadlock_text
from lib.communication.meetings import Meetings, agree, in_group
from lib.errors import DeadlockError, PuzzleError
from lib.trace.ops import group_of

from .rank_state import RankState
from .recompute_lanes import RetracedLanes


def refuse_deadlock(
    stuck: Sequence[RankState], ranks: Sequence[RankState], meetings: Meetings[RankState], lanes: RetracedLanes | None
) -> NoReturn:
    """Refuses a trace of which some ranks are stuck.

    Raises:
        PuzzleError: calls that wait for each other differ, or the ranks are deadlocked.
    """
    first = stuck[0]
    place, line = first.place(first.op.call()), first.op.line
    try:
        for meeting in meetings.open():
            agree([rank.arrival for _, rank in sorted(meeting.present().items()) if rank.arrival is not None])
        for under_way in lanes.meetings.open() if lanes else ():
            agree([call for _, call in sorted(under_way.present().items())])
    except PuzzleError as why:
        raise why.at(place, line) from None
    waits = [_waiting(rank, meetings, lanes) for rank in stuck]
    ended = {rank.rank: "has returned" for rank in ranks if rank.ended}
    raise DeadlockError(deadlock_text(waits, ended), place, line)


def _waiting(rank: RankState, meetings: Meetings[RankState], lanes: RetracedLanes | None) -> WaitingRank:
    op = rank.op
    if op.name == "await" and lanes is not None:
        return lanes.waiting(rank)
    kind = {"pass_to": "post", "receive": "receive"}.get(op.name, "collective")
    if kind != "collective":
        return WaitingRank(rank.rank, op.call(), op.line, kind, op.args[:1])
    group = group_of(op)
    return WaitingRank(rank.rank, op.call() + in_group(group), op.line, kind, meetings.of(group).missing())
