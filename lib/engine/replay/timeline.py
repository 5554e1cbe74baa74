"""Places each measured event of a replay in time.

The measurements are the working times of events. From these, the clock runs as in the game: a collective starts when
the last rank arrives and takes as long as its fastest rank, since the others were waiting; a message can be received
once it is sent; an overlapped call runs on its lane. So the picture shows devices that run at the same time, even if
they took turns.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lib.communication.lanes import Cursor, Walk
from lib.communication.meetings import Call
from lib.game.setting import Game
from lib.rules.collectives import COLLECTIVES
from lib.trace.ops import TIMED, Op, Trace, group_of


class TimedEvent(NamedTuple):
    """One event: its operation, layer, start and end; for an overlapped call also when it was made, and when its rank
    began to wait for it."""

    name: str
    layer: int | None
    start: float
    end: float
    called: float | None = None
    awaited: float | None = None


def measured(trace: Trace, seconds: Sequence[Sequence[float]]) -> tuple[tuple[TimedEvent, ...], ...]:
    """Every rank's events, in seconds, from the working times of its events."""
    clocks = [RankClock(rank, ops) for rank, ops in enumerate(trace.ranks)]
    for clock, took in zip(clocks, seconds):
        clock.seconds = dict(zip([i for i, op in enumerate(clock.ops) if op.name in TIMED], took, strict=True))
    MeasuredWalk(clocks, trace).walk()
    return tuple(tuple(event for _, event in sorted(clock.events.items())) for clock in clocks)


@dataclass(slots=True, eq=False)
class RankClock(Cursor):
    """One rank: the working time of each event, and the events so far, by index of the operation."""

    seconds: dict[int, float] = field(default_factory=dict)
    events: dict[int, TimedEvent] = field(default_factory=dict)

    @property
    def took(self) -> float:
        return self.seconds[self.at]

    def add(self, op: Op, start: float, length: float) -> None:
        self.clock = start + length
        self.events[self.at] = TimedEvent(op.name, op.layer, start, self.clock)


class MeasuredWalk(Walk[RankClock]):
    def __init__(self, clocks: Sequence[RankClock], trace: Trace) -> None:
        super().__init__(Game.of(trace.size, trace.setting), clocks, buffered=True)  # as the engine's sends are

    def on_local(self, cursor: RankClock, op: Op) -> None:
        if op.name in TIMED:
            cursor.add(op, cursor.clock, cursor.took)

    def on_call(self, cursor: RankClock, op: Op) -> Call:
        return self.call(cursor, op, group_of(op) if op.name in COLLECTIVES else None, (None,) * len(op.inputs))

    def require_inputs(self, call: Call) -> None:
        pass

    def ticks(self, calls: Sequence[Call], outputs: Sequence[Any]) -> Any:
        return min(self.cursors[call.rank].seconds[call.at] for call in calls)

    def perform(self, calls: Sequence[Call]) -> list[tuple[Any, ...]]:
        return [(None,) * len(call.op.outputs) for call in calls]

    def on_end(self, cursor: RankClock, call: Call) -> None:
        beside = (call.clock,) if call.name in self.on_lanes else ()
        cursor.events[call.at] = TimedEvent(call.name, call.op.layer, call.start, call.end, *beside)

    def on_receive(self, cursor: RankClock, op: Op, sender: RankClock, sent_at: int) -> None:
        # The time in receive is mostly waiting; copying took as long as it took to send.
        arrived = sender.events[sent_at].end
        cursor.add(op, max(cursor.clock, arrived), min(cursor.took, sender.seconds[sent_at]))

    def on_await(self, cursor: RankClock, op: Op, call: Call) -> None:
        super().on_await(cursor, op, call)
        cursor.events[call.at] = cursor.events[call.at]._replace(awaited=cursor.clock)
