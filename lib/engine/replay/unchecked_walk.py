"""Walks a trace without checking the rules, so that a refused trace can be followed too, as far as it runs.

Subclasses say what a call does: `LabelWalk` follows labels, `MeasuredWalk` seconds.
"""

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
    def waits_for(self, call: Call) -> bool:
        return not self.ended  # it may be anything that uses what the call makes


C = TypeVar("C", bound=UncheckedCursor)


class UncheckedWalk(Walk[C], Generic[C]):
    """Visits every operation of a trace. A blocking collective is a call that is awaited where it is made.

    Subclasses define `on_local`, `on_send`, `on_receive` and, for calls, `value`, `perform`, `ticks` and `on_end`.
    """

    def __init__(self, cursors: Sequence[C], trace: Trace) -> None:
        super().__init__(Game.of(trace.size, trace.setting), cursors, buffered=True)  # as the engine's sends are

    def visit(self, cursor: C, op: Op) -> bool:
        return not self._too_early(cursor, op) and super().visit(cursor, op)

    def _too_early(self, cursor: C, op: Op) -> bool:
        """True if an operation uses the result of a call that has not run. This happens in a refused trace, whose rank
        has not awaited the call."""
        pending = cursor.pending
        if not pending or op.name == "await" or op.name in self.on_lanes:
            return False
        return any(number in pending and not pending[number].settled for number in op.inputs)

    def on_call(self, cursor: C, op: Op) -> Call:
        group = group_of(op) if op.name in COLLECTIVES else None
        return self.call(cursor, op, group, self._inputs(cursor, op) if self.on_lanes else ())

    def on_collective(self, calls: Sequence[Call]) -> Sequence[Call]:
        for call in calls:
            call.values = self._inputs(self.cursors[call.rank], call.op)
        start = max(call.clock for call in calls)
        made = self.perform(calls)
        assert made is not None
        end = start + self.ticks(calls, made)
        for call, outputs in zip(calls, made):
            call.start, call.end, call.outputs = start, end, outputs
        return calls

    def _inputs(self, cursor: C, op: Op) -> tuple[Any, ...]:
        return tuple([None if number in cursor.pending else self.value(cursor, number) for number in op.inputs])

    def value(self, cursor: C, number: int) -> Any:
        """The stand-in for a value that a call uses."""

    def on_result(self, cursor: C, op: Op, result: Call) -> None:
        self.on_end(cursor, result)
        cursor.clock = result.end

    def ticks(self, calls: Sequence[Call], made: Sequence[Any]) -> Any:
        return 0

    def require_inputs(self, call: Call) -> None:
        pass

    def refuse(self, calls: Sequence[Call], why: PuzzleError) -> NoReturn:
        raise why
