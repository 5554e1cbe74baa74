"""Refuses a trace in which ranks wait forever: their calls differ, or there is a deadlock."""

from collections.abc import Sequence
from typing import NoReturn

from lib.communication.deadlock_text import WaitingRank, deadlock_text
from lib.communication.meetings import in_group, require_same_call
from lib.communication.walk import Walk
from lib.errors import DeadlockError, PuzzleError
from lib.trace.ops import group_of

from .rank_state import RankState


def refuse_deadlock(stuck: Sequence[RankState], walk: Walk[RankState], has_groups: bool) -> NoReturn:
    first = stuck[0]
    place, line = first.place(first.op.call()), first.op.line
    try:
        for meeting in walk.meetings.pending():
            require_same_call([call for _, call in sorted(meeting.arrived().items())], has_groups)
    except PuzzleError as why:
        raise why.at(place, line) from None
    waits = [_waiting(rank, walk) for rank in stuck]
    ended = {rank.rank: "has returned" for rank in walk.cursors if rank.ended}
    raise DeadlockError(deadlock_text(waits, ended, has_groups), place, line)


def _waiting(rank: RankState, walk: Walk[RankState]) -> WaitingRank:
    op = rank.op
    if op.name == "await":
        call = rank.calls[op.args[0]]
        return WaitingRank(rank.rank, f"await {call.op.call()}{in_group(call.group)}", op.line, *walk.why_blocked(call))
    kind = {"pass_to": "post", "receive": "receive"}.get(op.name, "collective")
    if kind != "collective":
        return WaitingRank(rank.rank, op.call(), op.line, kind, op.args[:1])
    group = group_of(op)
    return WaitingRank(rank.rank, op.call() + in_group(group), op.line, kind, walk.meetings.of(group).missing())
