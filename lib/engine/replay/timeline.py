"""When each event of a replay took place: as the trace foretells it, and as it was measured.

What is measured is how long each event worked. From that, the clock runs as the game's does: a collective starts
when the last rank has come and takes as long as the quickest rank was in it (the others were waiting), a message
can be received once it is sent. So the picture is of devices that run at once, also where they took turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from lib.costs import steps
from lib.trace import TIMED, Trace

from .placement import COLLECTIVE


class Span(NamedTuple):
    """One event: its operation, layer, start and end."""

    name: str
    layer: int | None
    start: float
    end: float


def foretold(trace: Trace) -> tuple[tuple[Span, ...], ...]:
    """Every rank's events, in steps."""
    return tuple(
        tuple(Span(op.name, op.layer, steps(op.start), steps(op.end)) for op in trace.events(rank))
        for rank in range(len(trace.ranks))
    )


def measured(trace: Trace, seconds: Sequence[Sequence[float]]) -> tuple[tuple[Span, ...], ...]:
    """Every rank's events, in seconds, from how long each took on its rank."""
    ranks = range(len(trace.ranks))
    events = [[op for op in ops if op.name in TIMED] for ops in trace.ranks]
    spans: list[list[Span]] = [[] for _ in ranks]
    clock = [0.0] * len(events)
    mail: dict[tuple[int, int], deque[tuple[float, float]]] = {}
    waiting: set[int] = set()

    def write(rank: int, start: float, length: float) -> None:
        op = events[rank][len(spans[rank])]
        clock[rank] = start + length
        spans[rank].append(Span(op.name, op.layer, start, clock[rank]))

    def step(rank: int) -> bool:
        op, length = events[rank][len(spans[rank])], seconds[rank][len(spans[rank])]
        if op.name in COLLECTIVE:
            waiting.add(rank)
            if len(waiting) < len(events):
                return False
            start = max(clock)
            quickest = min(seconds[r][len(spans[r])] for r in ranks)
            waiting.clear()
            for r in ranks:
                write(r, start, quickest)
        elif op.name == "receive":
            box = mail.get((op.args[0], rank))
            if not box:
                return False
            # How long it was in receive is mostly waiting; copying took as long as it took to send.
            sent, took = box.popleft()
            write(rank, max(clock[rank], sent), min(length, took))
        else:
            write(rank, clock[rank], length)
            if op.name == "pass_to":
                mail.setdefault((rank, op.args[0]), deque()).append((clock[rank], length))
        return True

    moved = True
    while moved:
        moved = False
        for rank in ranks:
            while len(spans[rank]) < len(events[rank]) and step(rank):
                moved = True
    return tuple(map(tuple, spans))
