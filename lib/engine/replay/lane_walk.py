"""Walks a trace in which calls may run on lanes beside their ranks, until they are awaited.

Lanes work as in the game (`lib.communication.lanes`): first in, first out, each call after those whose results it
takes. Only what a call does is the subclass's: `Placement` follows its labels, `MeasuredWalk` its seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NoReturn, TypeVar

from lib.communication.lanes import LANES, Call, Lanes, Made
from lib.communication.walk import Cursor, Walk
from lib.errors import PuzzleError, TraceError
from lib.game.setting import Game
from lib.rules.collectives import COLLECTIVES, Group
from lib.trace.ops import Op, Trace, group_of


@dataclass(slots=True, eq=False)
class LaneCursor(Cursor):
    """One rank: its clock, and its calls that were not awaited yet, by index and by the numbers of what they make."""

    clock: Any = 0
    calls: dict[int, Call] = field(default_factory=dict)
    under_way: dict[int, Call] = field(default_factory=dict)


C = TypeVar("C", bound=LaneCursor)


class LaneWalk(Walk[C], Generic[C]):
    """Visits every operation of a trace. Subclasses define `alone`, `received`, `bring`, `perform`, `ticks`, `settled`
    and, without overlap, `sent`."""

    def __init__(self, cursors: Sequence[C], trace: Trace) -> None:
        super().__init__(cursors, buffered=True)  # as the engine's sends are
        self.on_lanes = frozenset(LANES) if trace.costs.overlap else frozenset[str]()
        self._lanes = WalkedLanes(trace, self)

    def bring(self, cursor: C, number: int) -> Any:
        """What stands for a value that a call brings."""

    def perform(self, calls: Sequence[Call]) -> Sequence[tuple[Any, ...]]:
        """Performs calls that belong together: what stands for the values that each makes."""
        raise NotImplementedError

    def ticks(self, calls: Sequence[Call]) -> Any:
        """How long calls take that belong together."""
        return 0

    def settled(self, cursor: C, call: Call) -> None:
        """Takes note of what a call has made, and when it ran."""

    def joined(self, cursor: C, call: Call) -> None:
        """Takes note that a rank has awaited a call."""

    def issued(self, cursor: C) -> None:
        """Takes note that a rank makes a call, which may not run yet."""

    def call_of(self, cursor: C) -> Call:
        """The call that a rank's next operation makes."""
        op = cursor.op
        made = [self._made(cursor, number) or self.bring(cursor, number) for number in op.used]
        group = group_of(op) if op.name in COLLECTIVES else None
        return Call(cursor.rank, cursor.at, cursor.clock, None, op, group, tuple(made))

    def visit(self, cursor: C, op: Op) -> bool:
        if op.name == "await":
            return self._join(cursor, op)
        if op.name not in self.on_lanes:
            return not self._too_early(cursor, op) and super().visit(cursor, op)
        self.issued(cursor)
        call = cursor.calls[cursor.at] = self.call_of(cursor)
        cursor.under_way.update(dict.fromkeys(op.made, call))
        self._lanes.issue(call)
        cursor.at += 1
        return True

    def meet(self, cursors: Sequence[C]) -> Sequence[Call]:
        """A collective that is awaited at once is a call as well."""
        calls = [self.call_of(cursor) for cursor in cursors]
        for call in calls:
            call.ready()
        start, ticks = max(call.clock for call in calls), self.ticks(calls)
        for call, made in zip(calls, self.perform(calls)):
            call.start, call.end, call.made = start, start + ticks, made
        return calls

    def met(self, cursor: C, op: Op, result: Call) -> None:
        self.settled(cursor, result)
        cursor.clock = result.end

    def arrived(self, call: Call) -> None:
        """Lets the ranks go on that a call has kept waiting."""
        cursor, op = self.cursors[call.rank], call.op
        if op.name == "pass_to":
            to, *tag = op.args
            self.mailboxes.put(call.rank, to, call.at, *tag)
            self.wake_receiver(cursor, op)
        if not cursor.ended:
            self.wake(cursor)

    def _join(self, cursor: C, op: Op) -> bool:
        call = cursor.calls.get(op.args[0])
        if call is None:
            raise TraceError(f"rank {cursor.rank} awaits operation {op.args[0]}, which is no call under way")
        if not call.settled:
            return False
        cursor.clock = max(cursor.clock, call.end)
        self.joined(cursor, call)
        del cursor.calls[call.at]
        for number in call.op.made:
            del cursor.under_way[number]
        cursor.at += 1
        return True

    @staticmethod
    def _too_early(cursor: C, op: Op) -> bool:
        """True if an operation uses what no call has made yet: in a refused trace, whose rank has not awaited it."""
        calls = cursor.under_way
        return bool(calls) and any(number in calls and not calls[number].settled for number in op.used)

    @staticmethod
    def _made(cursor: C, number: int) -> Made | None:
        call = cursor.under_way.get(number)
        return None if call is None else Made(call, call.op.made.index(number))


class WalkedLanes(Lanes):
    """The calls under way of a walk."""

    def __init__(self, trace: Trace, walk: LaneWalk[Any]) -> None:
        super().__init__(Game.of(trace.size, trace.setting))
        self._walk = walk

    def perform(self, calls: Sequence[Call]) -> Sequence[tuple[Any, ...]]:
        return self._walk.perform(calls)

    def settle(self, call: Call) -> None:
        self._walk.settled(self._walk.cursors[call.rank], call)
        self._walk.arrived(call)

    def refuse(self, calls: Sequence[Call], why: PuzzleError) -> NoReturn:
        raise why

    def _together(self, call: Call) -> Sequence[Call]:
        """As in the game, but without its rules."""
        return [call] if call.name not in COLLECTIVES else self.meetings.of(call.group).come(call.rank, call) or ()

    def _ticks(self, calls: Sequence[Call], made: Sequence[Any]) -> Any:
        return self._walk.ticks(calls)


def members(group: Group | None, ranks: int) -> Group:
    """The ranks of a group."""
    return tuple(range(ranks)) if group is None else group
