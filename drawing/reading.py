"""A trace as what there is to see: operations, idle gaps, messages, collectives and memory, in steps.

Nothing here judges; what was measured comes from the referee's report.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lib import Model, Op, Outcome, Report, Trace, referee, trace_of

TICKS_PER_STEP = 10
COLLECTIVES = ("allreduce", "allgather", "scatterreduce")
MESSAGES = ("pass_to", "receive")


class Mark(NamedTuple):
    """One operation where it happened; `memory` is the rank's when it starts, if the referee got that far."""

    rank: int
    op: Op
    start: float
    end: float
    memory: int | None

    @property
    def partner(self) -> int | None:
        """The rank at the other end of a message."""
        args = self.op.args
        known = self.op.name in MESSAGES and len(args) == 1 and type(args[0]) is int
        return args[0] if known else None


class Link(NamedTuple):
    """A message; `received` is None if nobody read it."""

    source: int
    target: int
    sent: float
    received: float | None


class Tie(NamedTuple):
    """A collective: when it ran, and the first and last rank in it."""

    name: str
    start: float
    end: float
    first: int
    last: int


class Lane(NamedTuple):
    """One rank's part: its operations, where it is idle, and its memory as (from, to, elements)."""

    rank: int
    marks: tuple[Mark, ...]
    gaps: tuple[tuple[float, float], ...]
    memory: tuple[tuple[float, float, int], ...]


@dataclass(frozen=True)
class Scene:
    """Everything that a timeline shows."""

    layers: int
    batches: int
    end: float
    lanes: tuple[Lane, ...]
    links: tuple[Link, ...]
    ties: tuple[Tie, ...]
    report: Report

    @property
    def marks(self) -> Iterator[Mark]:
        return (mark for lane in self.lanes for mark in lane.marks)


def trace_from(run: Trace | Outcome | Model | Sequence[Model]) -> Trace:
    """The trace of whatever stands for a run: itself, an outcome, one model, or all of them."""
    if isinstance(run, Outcome):
        return run.trace
    if isinstance(run, Trace):
        return run
    return trace_of([run] if isinstance(run, Model) else run)


def read(trace: Trace) -> Scene:
    """What there is to see in a trace, legal or not, finished or not."""
    report = referee(trace)
    events = [trace.events(rank) for rank in range(len(trace.ranks))]
    end = steps(max((op.end for ops in events for op in ops), default=0))
    measured = [rank.memory for rank in report.ranks]
    pairs = enumerate(zip(events, measured, strict=True))
    lanes = [_lane(rank, ops, memory, end) for rank, (ops, memory) in pairs]
    return Scene(
        layers=trace.size.layers,
        batches=trace.size.batches,
        end=end,
        lanes=tuple(lanes),
        links=tuple(_links(lanes)),
        ties=tuple(_ties(lanes)),
        report=report,
    )


def steps(ticks: int) -> float:
    return ticks / TICKS_PER_STEP


def plain(number: float) -> str:
    """19.9 is '19.9', 17.0 is '17'."""
    return f"{number:.1f}".removesuffix(".0")


def _lane(rank: int, ops: Sequence[Op], memory: Sequence[int], end: float) -> Lane:
    # One number for each event that the referee has seen, and one for the end.
    known: list[int | None] = [*memory[:-1]]
    known += [None] * (len(ops) - len(known))
    marks = [Mark(rank, op, steps(op.start), steps(op.end), m) for op, m in zip(ops, known, strict=True)]
    return Lane(rank, tuple(marks), tuple(_gaps(marks, end)), tuple(_spans(marks, memory, end)))


def _gaps(marks: Sequence[Mark], end: float) -> Iterator[tuple[float, float]]:
    clock = 0.0
    for mark in marks:
        if mark.start > clock:
            yield clock, mark.start
        clock = max(clock, mark.end)
    if end > clock:
        yield clock, end


def _spans(marks: Sequence[Mark], memory: Sequence[int], end: float) -> Iterator[tuple[float, float, int]]:
    """Memory holds from the end of the last operation to the end of this one: it is what this one finds."""
    clock = 0.0
    for mark in marks:
        if mark.memory is None:
            return
        yield clock, mark.end, mark.memory
        clock = mark.end
    if len(memory) == len(marks) + 1:
        yield clock, end, memory[-1]


def _links(lanes: Sequence[Lane]) -> Iterator[Link]:
    """Sends and receives, paired in order for each sender and receiver."""
    reads: dict[tuple[int, int], list[float]] = {}
    for lane in lanes:
        for mark in lane.marks:
            if mark.op.name == "receive" and mark.partner is not None:
                reads.setdefault((mark.partner, lane.rank), []).append(mark.start)
    for lane in lanes:
        sent: dict[int, int] = {}
        for mark in lane.marks:
            to = mark.partner
            if mark.op.name == "pass_to" and to is not None and 0 <= to < len(lanes):
                nth = sent[to] = sent.get(to, -1) + 1
                starts = reads.get((lane.rank, to), [])
                yield Link(lane.rank, to, mark.end, starts[nth] if nth < len(starts) else None)


def _ties(lanes: Sequence[Lane]) -> Iterator[Tie]:
    """Collectives: the same operation on the same layer at the same time."""
    ranks: dict[tuple[str, int | None, float, float], list[int]] = {}
    for lane in lanes:
        for mark in lane.marks:
            if mark.op.name in COLLECTIVES:
                ranks.setdefault((mark.op.name, mark.op.layer, mark.start, mark.end), []).append(lane.rank)
    for (name, _, start, end), members in ranks.items():
        if members[-1] > members[0]:
            yield Tie(name, start, end, members[0], members[-1])
