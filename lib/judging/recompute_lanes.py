"""Re-executes overlapped calls, checks their results and times, and refuses ranks that wait forever."""

from collections.abc import Sequence
from typing import NoReturn

from lib.communication.calls import Call, in_group
from lib.communication.deadlock_text import WaitingRank, cycle_of, deadlock_text
from lib.communication.meetings import require_same_call
from lib.communication.walk import Walk
from lib.errors import DeadlockError, PuzzleError, RuleError, TraceError
from lib.rules.collectives import Group, requested_batches
from lib.rules.requirements import WHOLE
from lib.rules.rooted import results_of, root_in
from lib.trace.ops import NO_BATCHES, Op, group_of, place_text
from lib.values.base import Value
from lib.values.kinds import WeightGrad

from .rank_state import RankState
from .record_checks import refuse_pending
from .words import SAYS


class OverlappedCalls(Walk[RankState]):
    """The calls of all ranks that run on lanes. Each is checked when its rank makes it, and when it ends."""

    def overlapped(self, rank: RankState, op: Op, group: Group | None, used: Sequence[Value]) -> Call:
        """The call in a record; its times are checked when they are known."""
        if op.name == "pass_to":
            refuse_pending(rank, op.inputs)
        alike = used[1:3] if op.name == "tier_update" else used
        first, root = len(rank.values), root_in(op.name, op.args)
        count = 0 if op.name == "pass_to" else results_of(op.name, len(alike), rank.rank, root)
        numbers = (first,) if count == 1 else tuple(range(first, first + count))
        if op.outputs != numbers or op.batches != requested_batches(self.game, op.name, op.batches):
            raise TraceError(SAYS("other message", count=count, first=first, op=op))
        call = self.call(rank, op, group, used)
        for number, value in zip(numbers, alike or [self._unknown(op)]):
            rank.values[number] = value  # until it ends, what it uses stands in for what it makes
        return call

    def _unknown(self, op: Op) -> Value:
        """What stands in for a value from another rank, which `refuse_broadcast` keeps from every other call."""
        return WeightGrad.made(op.layer, self.game.layers, NO_BATCHES, self.game.batches, *WHOLE)

    def awaited(self, cursor: RankState, op: Op) -> Call:
        if not self.on_lanes:
            raise TraceError(SAYS("nothing pending", costs=self.costs.name, op=op))
        (at,) = op.args
        call = cursor.calls.get(at)
        if call is None:
            raise TraceError(SAYS("not pending", operation=at))
        return call

    def on_await(self, cursor: RankState, op: Op, call: Call) -> None:
        after = max(cursor.clock, call.end)
        if op[1:-2] != (cursor.clock, after, None, NO_BATCHES, call.op.inputs, ()):
            raise TraceError(
                SAYS("other end", start=cursor.clock, end=after, inputs=[*call.op.inputs], call=call.op.call(), op=op)
            )
        if after > cursor.clock:
            cursor.clock = after
            cursor.cause = call.place

    def on_end(self, cursor: RankState, call: Call) -> None:
        op = call.op
        if op.start != call.start or op.end != call.end:
            why = TraceError(SAYS("other ticks", start=call.start, end=call.end, op_start=op.start, op_end=op.end))
            raise self._at(call, why)
        cursor.causes[call.at] = call.cause
        cursor.values.update(zip(op.outputs, call.outputs))

    def refuse(self, calls: Sequence[Call], why: PuzzleError) -> None:
        raise self._at(min(calls, key=lambda call: (call.clock, call.rank)), why)

    def _at(self, call: Call, why: PuzzleError) -> PuzzleError:
        return why.at(place_text(call.rank, self.costs.text(call.clock), call.op.call()), call.line)

    def refuse_unawaited(self) -> None:
        """Refuses a trace whose ranks have ended with calls that were not awaited."""
        for rank in self.cursors:
            for call in rank.calls.values():
                why = RuleError(SAYS("never awaited", call=call))
                raise why.at(rank.place("the end"), call.line)


def refuse_deadlock(stuck: Sequence[RankState], walk: Walk[RankState], has_groups: bool) -> NoReturn:
    """Refuses a trace in which ranks wait forever: their calls differ, or there is a deadlock."""
    first = stuck[0]
    place, line = first.place(first.op.call()), first.op.line
    try:
        for meeting in walk.meetings.pending():
            require_same_call([call for _, call in sorted(meeting.arrived().items())], has_groups)
    except PuzzleError as why:
        raise why.at(place, line) from None
    waits = [_waiting(rank, walk) for rank in stuck]
    ended = {rank.rank: "has returned" for rank in walk.cursors if rank.ended}
    raise DeadlockError(deadlock_text(waits, ended, cycle_of(waits), has_groups), place, line)


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
