"""Places each event of a replay in time, as predicted from the trace and as measured.

The measurement is how long each event worked. From that, the clock runs as in the game: a collective starts when the
last rank has arrived and takes as long as the fastest rank spent in it (the others were waiting); a message can be
received once it is sent. So the picture shows devices running in parallel, even if they took turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lib.trace import TIMED, Op, Trace
from lib.trace_walk import Cursor, Walk


class TimedEvent(NamedTuple):
    """One event: its operation, layer, start and end."""

    name: str
    layer: int | None
    start: float
    end: float


def predicted(trace: Trace) -> tuple[tuple[TimedEvent, ...], ...]:
    """Every rank's events, in steps."""
    steps = trace.costs.steps
    return tuple(
        tuple(TimedEvent(op.name, op.layer, steps(op.start), steps(op.end)) for op in trace.events(rank))
        for rank in range(len(trace.ranks))
    )


def measured(trace: Trace, seconds: Sequence[Sequence[float]]) -> tuple[tuple[TimedEvent, ...], ...]:
    """Every rank's events, in seconds, from how long each took on its rank."""
    clocks = [RankClock(rank, ops, seconds=took) for rank, (ops, took) in enumerate(zip(trace.ranks, seconds))]
    MeasuredWalk(clocks, buffered=True).walk()
    return tuple(tuple(clock.events) for clock in clocks)


@dataclass(slots=True, eq=False)
class RankClock(Cursor):
    """One rank: how long each of its events took, and the events so far."""

    seconds: Sequence[float] = ()
    clock: float = 0.0
    events: list[TimedEvent] = field(default_factory=list)
    sent: dict[int, tuple[float, float]] = field(default_factory=dict)
    """By index of a pass_to: when it ended, and how long it took."""

    @property
    def took(self) -> float:
        """The seconds of the next event."""
        return self.seconds[len(self.events)]

    def advance(self, op: Op, start: float, length: float) -> None:
        """Adds the next event."""
        self.clock = start + length
        self.events.append(TimedEvent(op.name, op.layer, start, self.clock))


class MeasuredWalk(Walk[RankClock]):
    """Runs every rank's clock over its events, with the measured seconds."""

    def alone(self, cursor: RankClock, op: Op) -> None:
        if op.name in TIMED:
            cursor.advance(op, cursor.clock, cursor.took)

    def meet(self, cursors: Sequence[RankClock]) -> list[tuple[float, float]]:
        start = max(rank.clock for rank in cursors)
        quickest = min(rank.took for rank in cursors)
        return [(start, quickest)] * len(cursors)

    def met(self, cursor: RankClock, op: Op, result: tuple[float, float]) -> None:
        cursor.advance(op, *result)

    def sent(self, cursor: RankClock, op: Op) -> None:
        length = cursor.took
        cursor.advance(op, cursor.clock, length)
        cursor.sent[cursor.at] = cursor.clock, length

    def received(self, cursor: RankClock, op: Op, sender: RankClock, sent_at: int) -> None:
        # The time in receive is mostly waiting; copying took as long as it took to send.
        arrived, length = sender.sent[sent_at]
        cursor.advance(op, max(cursor.clock, arrived), min(cursor.took, length))
