"""The scene of a trace: operations, idle gaps, messages, collectives and memory, with times in steps.

Nothing is judged here: memory, waits and the critical path come from the referee's report, ticks of a step from lib.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from lib import (
    COLLECTIVES,
    TIMED,
    Goal,
    Model,
    Op,
    Outcome,
    PuzzleError,
    Report,
    Sample,
    Trace,
    memory_by_kind,
    referee,
    trace_of,
)

MESSAGES = ("pass_to", "receive")

Tag = tuple[object, ...]
"""The tag of a message, as the arguments after its partner."""


class Mark(NamedTuple):
    """One operation where it happened: number `place` of its rank's operations, number `number` of all events.

    Times in steps. `memory` is the rank's when it starts, in elements, if the referee got that far.
    """

    rank: int
    op: Op
    start: float
    end: float
    memory: int | None
    place: int = 0
    number: int = 0

    @property
    def partner(self) -> int | None:
        """The rank at the other end of a message."""
        args = self.op.args
        known = self.op.name in MESSAGES and len(args) > 0 and type(args[0]) is int
        return args[0] if known else None


class Link(NamedTuple):
    """A message; `receive` is None if nobody read it."""

    send: Mark
    target: int
    receive: Mark | None

    @property
    def source(self) -> int:
        return self.send.rank

    @property
    def sent(self) -> float:
        return self.send.end

    @property
    def received(self) -> float | None:
        return None if self.receive is None else self.receive.start


class Tie(NamedTuple):
    """A collective: its marks, in the order of their ranks."""

    name: str
    start: float
    end: float
    members: tuple[Mark, ...]

    @property
    def first(self) -> int:
        return self.members[0].rank

    @property
    def last(self) -> int:
        return self.members[-1].rank


class Gap(NamedTuple):
    """Idle time, up to the mark `before`, or to the end of the run if that is None."""

    start: float
    end: float
    before: Mark | None


class MemorySpan(NamedTuple):
    """Memory from one moment to another: by kind, and in all."""

    start: float
    end: float
    kinds: Sample
    memory: int


class Lane(NamedTuple):
    """One rank's part: its operations, where it is idle, and its memory."""

    rank: int
    marks: tuple[Mark, ...]
    gaps: tuple[Gap, ...]
    memory: tuple[MemorySpan, ...]


@dataclass(frozen=True)
class Scene:
    """Everything that a timeline shows."""

    trace: Trace
    report: Report
    lanes: tuple[Lane, ...]
    links: tuple[Link, ...]
    ties: tuple[Tie, ...]
    end: float
    """Of the last operation, in steps."""

    @property
    def layers(self) -> int:
        return self.trace.size.layers

    @property
    def batches(self) -> int:
        return self.trace.size.batches

    @property
    def goal(self) -> Goal | None:
        return self.report.goal

    @property
    def marks(self) -> Iterator[Mark]:
        return (mark for lane in self.lanes for mark in lane.marks)

    @cached_property
    def at(self) -> dict[tuple[int, int], Mark]:
        """Marks by rank and place, as the referee names events."""
        return {(mark.rank, mark.place): mark for mark in self.marks}

    @property
    def critical(self) -> list[Mark]:
        """The critical path: the events that the last one waited for, one after the other."""
        return [self.at[place] for place in self.report.critical_path]

    def previous(self, mark: Mark) -> Mark | None:
        """The operation of its rank before it."""
        marks = self.lanes[mark.rank].marks
        place = mark.number - marks[0].number
        return marks[place - 1] if place else None

    @property
    def most(self) -> int:
        """The most memory that any rank needs."""
        return max((span.memory for lane in self.lanes for span in lane.memory), default=0)


RunLike = Trace | Outcome | Model | Sequence[Model]
"""A run as callers have it: its trace, its outcome, one model, or all of them."""


def trace_from(run: RunLike) -> Trace:
    """The trace of a run.

    Raises:
        PuzzleError: this is no run, or one of no ranks.
    """
    if isinstance(run, Outcome):
        return run.trace
    if isinstance(run, Model):
        return trace_of([run])
    if isinstance(run, Trace):
        if not run.ranks:
            raise PuzzleError("this trace has no ranks, so there is nothing to draw")
        return run
    if not isinstance(run, Sequence):
        raise PuzzleError(f"draw takes the models of a run, or its trace; got {type(run).__name__}")
    return trace_of(run)


def scene_of(trace: Trace, goal: Goal | None = None) -> Scene:
    """The scene of a trace, legal or not, finished or not; with a `goal`, its report is that of a puzzle."""
    report = referee(trace, goal)
    end = trace.costs.steps(max((op.end for rank in range(len(trace.ranks)) for op in trace.events(rank)), default=0))
    lanes: list[Lane] = []
    number = 0
    for rank, samples in enumerate(memory_by_kind(trace)):
        marks = _marks(rank, trace, report.ranks[rank].memory, number)
        number += len(marks)
        spans = _spans(marks, samples, report.ranks[rank].memory, end)
        lanes.append(Lane(rank, tuple(marks), tuple(idle_between(marks, end)), tuple(spans)))
    return Scene(trace, report, tuple(lanes), tuple(_links(lanes)), tuple(_ties(lanes)), end)


def _marks(rank: int, trace: Trace, memory: Sequence[int], number: int) -> list[Mark]:
    steps = trace.costs.steps
    events = [(i, op) for i, op in enumerate(trace.ranks[rank]) if op.name in TIMED]
    # One figure for each event that the referee has seen, and one for the end.
    known: list[int | None] = [*memory[:-1]]
    known += [None] * (len(events) - len(known))
    return [Mark(rank, op, steps(op.start), steps(op.end), known[n], i, number + n) for n, (i, op) in enumerate(events)]


def idle_between(marks: Sequence[Mark], end: float) -> Iterator[Gap]:
    """The gaps before, between and after the marks of one rank."""
    clock = 0.0
    for mark in marks:
        if mark.start > clock:
            yield Gap(clock, mark.start, mark)
        clock = max(clock, mark.end)
    if end > clock:
        yield Gap(clock, end, None)


def _spans(marks: Sequence[Mark], samples: Sequence[Sample], memory: Sequence[int], end: float) -> Iterator[MemorySpan]:
    """Memory holds from the end of the last operation to the end of this one: it is what this one finds."""
    ends = [*(mark.end for mark in marks[: len(memory) - 1])]
    if len(memory) == len(marks) + 1:
        ends.append(end)
    clock = 0.0
    for until, kinds, in_all in zip(ends, samples, memory, strict=False):
        yield MemorySpan(clock, until, kinds, in_all)
        clock = until


def _links(lanes: Sequence[Lane]) -> Iterator[Link]:
    """Sends and receives, paired in order for each sender, receiver and tag."""
    reads: dict[tuple[int, int, Tag], list[Mark]] = {}
    for lane in lanes:
        for mark in lane.marks:
            if mark.op.name == "receive" and mark.partner is not None:
                reads.setdefault((mark.partner, lane.rank, mark.op.args[1:]), []).append(mark)
    for lane in lanes:
        sent: dict[tuple[int, Tag], int] = {}
        for mark in lane.marks:
            to = mark.partner
            if mark.op.name == "pass_to" and to is not None and 0 <= to < len(lanes):
                tag = mark.op.args[1:]
                nth = sent[to, tag] = sent.get((to, tag), -1) + 1
                read_by = reads.get((lane.rank, to, tag), [])
                yield Link(mark, to, read_by[nth] if nth < len(read_by) else None)


def _ties(lanes: Sequence[Lane]) -> Iterator[Tie]:
    """Collectives: the same operation of the same group on the same layer at the same time."""
    groups: dict[tuple[str, int | None, object, float, float], list[Mark]] = {}
    for lane in lanes:
        for mark in lane.marks:
            if mark.op.name in COLLECTIVES:
                op, group = mark.op, (*mark.op.args, None)[0]
                groups.setdefault((op.name, op.layer, group, mark.start, mark.end), []).append(mark)
    for (name, _, _, start, end), members in groups.items():
        if len(members) > 1:
            yield Tie(name, start, end, tuple(members))
