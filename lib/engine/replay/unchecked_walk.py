"""Walks a trace without checking the rules, so that a refused trace can be followed too, as far as it runs.

What a call does is the subclass's: `Placement` follows its labels, `MeasuredWalk` its seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeVar

from lib.communication.lanes import Call
from lib.communication.walk import Cursor, Walk
from lib.errors import PuzzleError
from lib.game.setting import Game
from lib.rules.collectives import COLLECTIVES
from lib.trace.ops import Op, Trace, group_of


@dataclass(slots=True, eq=False)
class UncheckedCursor(Cursor):
    """A rank's place; `too_early` is a call that was not awaited, though the next operation uses what it makes."""

    too_early: Call | None = None

    def waits_for(self, call: Call) -> bool:
        return self.too_early is call or Cursor.waits_for(self, call)


C = TypeVar("C", bound=UncheckedCursor)


class UncheckedWalk(Walk[C], Generic[C]):
    """Visits every operation of a trace. A blocking collective is a call that is awaited where it is made.

    Subclasses define `on_local`, `on_send`, `on_receive` and, for calls, `value`, `perform`, `ticks` and `on_end`.
    """

    def __init__(self, cursors: Sequence[C], trace: Trace) -> None:
        super().__init__(Game.of(trace.size, trace.setting), cursors, buffered=True)  # as the engine's sends are

    def visit(self, cursor: C, op: Op) -> bool:
        if cursor.pending and op.name != "await" and op.name not in self.on_lanes:
            calls = map(cursor.pending.get, op.used)
            cursor.too_early = next((call for call in calls if call is not None and not call.settled), None)
            if cursor.too_early is not None:
                return False
        return super().visit(cursor, op)

    def on_call(self, cursor: C, op: Op) -> Call:
        inputs = [None if number in cursor.pending else self.value(cursor, number) for number in op.used]
        return self.call(cursor, op, group_of(op) if op.name in COLLECTIVES else None, inputs)

    def value(self, cursor: C, number: int) -> Any:
        """What stands for a value that a call uses."""

    def on_collective(self, calls: Sequence[Call]) -> Sequence[Call]:
        for call in calls:
            call.ready()
        made = self.perform(calls)
        assert made is not None
        start = max(call.clock for call in calls)
        end = start + self.ticks(calls, made)
        for call, outputs in zip(calls, made):
            call.start, call.end, call.made = start, end, outputs
        return calls

    def on_result(self, cursor: C, op: Op, result: Call) -> None:
        self.on_end(cursor, result)
        cursor.clock = result.end

    def ticks(self, calls: Sequence[Call], made: Sequence[Any]) -> Any:
        return 0

    def require_inputs(self, call: Call) -> None:
        pass

    def refuse(self, calls: Sequence[Call], why: PuzzleError) -> NoReturn:
        raise why
