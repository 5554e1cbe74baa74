"""The scene of a trace: operations, idle gaps, messages, collectives and memory, with times in steps.

Nothing is judged here: memory, waits and the critical path come from the referee's report, ticks per step from lib.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from lib import (
    TIMED,
    DeadlockError,
    Goal,
    IncompleteError,
    Model,
    Op,
    Outcome,
    PuzzleError,
    Report,
    Sample,
    Trace,
    clocks,
    event_steps,
    memory_by_kind,
    old_versions,
    referee,
    trace_of,
)
from lib.communication.meetings import stuck_ranks
from lib.recognition import recognize, recomputed

from .colouring import Colouring, require_colour
from .marks import Gap, LaneMarks, Link, Mark, MemorySpan, Tie, in_time, links_between, streams_of, ties_between
from .rows import MarkRows, rows_of

MAX_RECOGNIZED_OPERATIONS = 20_000
"""Longer runs are not recognized in pictures, because that would take longer than drawing them."""

STUCK_SHARE = 1.4
"""The picture of a deadlock is longer than the run by this factor, to show where each rank is stuck."""


@dataclass(frozen=True)
class Scene:
    """Everything that a timeline shows."""

    trace: Trace
    report: Report
    lanes: tuple[LaneMarks, ...]
    links: tuple[Link, ...]
    ties: tuple[Tie, ...]
    end: float
    """End of the last operation, in steps."""
    streams: tuple[str, ...]
    """The streams of every rank."""
    colour: str = "layer"
    """What the colours of operations show: 'layer', 'microbatch' or 'operation'."""
    known: str = ""
    """The name of the schedule, capitalized; empty if it is not correct, or too long to be recognized."""
    shares_rows: bool = True
    """If there are many ranks, those that do the same are drawn once."""

    @cached_property
    def rows(self) -> MarkRows:
        """The rows of a picture, and which ranks share one."""
        return rows_of(self.lanes, self.links, self.ties, self.report.waits, self.shares_rows)

    @cached_property
    def colouring(self) -> Colouring:
        return Colouring.of(self.colour, self.layers, self.lanes)

    @property
    def layers(self) -> int:
        return self.trace.size.layers

    @property
    def steps(self) -> int:
        """Training steps."""
        return self.trace.setting.steps

    @property
    def time_unit(self) -> str:
        """The name of a unit of the clock: 'steps' or 'us'."""
        return self.trace.costs.time_unit

    @property
    def goal(self) -> Goal | None:
        return self.report.goal

    @property
    def marks(self) -> Iterator[Mark]:
        return (mark for lane in self.lanes for mark in lane.marks)

    @cached_property
    def at(self) -> dict[tuple[int, int], Mark]:
        """Marks by rank and place, which is how the referee names events."""
        return {(mark.rank, mark.place): mark for mark in self.marks}

    @property
    def critical(self) -> list[Mark]:
        """The critical path: the events for which the last one waited, in order."""
        return [self.at[place] for place in self.report.critical_path]

    def previous(self, mark: Mark) -> Mark | None:
        """The previous operation of its rank."""
        marks = self.lanes[mark.rank].marks
        place = mark.number - marks[0].number
        return marks[place - 1] if place else None

    @property
    def most(self) -> int:
        """The highest memory of any rank."""
        return max((span.memory for lane in self.lanes for span in lane.memory), default=0)

    @property
    def shows_memory(self) -> bool:
        return has_memory(self.report)


@dataclass(frozen=True)
class TimedRun:
    """A trace whose memory and traffic are not shown, because the run stands for a larger one that shares them."""

    trace: Trace


@dataclass(frozen=True)
class EndedRun:
    """A trace, and the refusal that ended its run, which a trace does not include, such as a deadlock."""

    trace: Trace
    error: PuzzleError


RunLike = Trace | Outcome | TimedRun | EndedRun | Model | Sequence[Model]
"""A run in any form: its trace, its outcome, one model, or all of them."""


def trace_from(run: RunLike) -> Trace:
    """The trace of a run."""
    if isinstance(run, Outcome | TimedRun | EndedRun):
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


def scene_from(run: RunLike, goal: Goal | None = None, colour: str = "layer") -> Scene:
    """The scene of a run. If the trace just ends, the refusal that ended the run is the error."""
    scene = scene_of(trace_from(run), goal, colour, times_only=isinstance(run, TimedRun))
    error = run.error if isinstance(run, Outcome | EndedRun) else None
    if not isinstance(error, DeadlockError) or not isinstance(scene.report.error, IncompleteError | None):
        return scene
    return _ended_in(error, scene)


def _ended_in(error: DeadlockError, scene: Scene) -> Scene:
    """The scene of a deadlock, with room at its end for the calls in which the ranks are stuck."""
    end = max(scene.end * STUCK_SHARE, scene.end + 1)
    stuck = stuck_ranks(str(error))
    lanes = []
    for lane in scene.lanes:
        gaps = [gap for gap in lane.gaps if gap.before is not None]
        start = max((mark.end for mark in lane.marks if not mark.stream), default=0.0)
        gaps.append(Gap(start, end, None, stuck=stuck.get(lane.rank, "")))
        lanes.append(lane._replace(gaps=tuple(gaps)))
    return replace(scene, lanes=tuple(lanes), end=end, report=replace(scene.report, error=error))


def scene_of(trace: Trace, goal: Goal | None = None, colour: str = "layer", times_only: bool = False) -> Scene:
    """The scene of a trace, legal or not, finished or not. With a `goal`, its report applies the rules of a puzzle.
    With `times_only`, it has no memory, no traffic and no name."""
    require_colour(colour)
    report = referee(trace, goal)
    if times_only:
        report = without_memory(without_traffic(report))
    end = trace.costs.steps(max((op.end for rank in range(len(trace.ranks)) for op in trace.events(rank)), default=0))
    streams, numbers = streams_of(trace)
    steps = event_steps(trace) if trace.setting.steps > 1 else [()] * len(trace.ranks)
    old = old_versions(trace) if trace.setting.lag else [frozenset[int]()] * len(trace.ranks)
    lanes: list[LaneMarks] = []
    number = 0
    for rank, samples in enumerate(memory_by_kind(trace)):
        memory = report.ranks[rank].memory
        marks = _marks(rank, trace, numbers[rank], memory, number, steps[rank])
        marks = [mark._replace(old=True) if mark.place in old[rank] else mark for mark in marks]
        number += len(marks)
        gaps = idle_between(marks, end, awaited_before(trace.ranks[rank], marks))
        lanes.append(
            LaneMarks(rank, tuple(marks), tuple(gaps), tuple(_spans(marks, samples, memory, end)), _slow(trace, rank))
        )
    links, ties = tuple(links_between(lanes)), tuple(ties_between(lanes))
    known = "" if times_only else _known(trace, report)
    return Scene(trace, report, tuple(lanes), links, ties, end, streams, colour, known)


def without_traffic(report: Report) -> Report:
    nothing = report.sent._replace(busiest=0, total=0, between=0, by_rank=((),) * len(report.ranks))
    return replace(report, sent=nothing)


def has_memory(report: Report) -> bool:
    return any(rank.memory for rank in report.ranks)


def without_memory(report: Report) -> Report:
    ranks = tuple(rank._replace(memory=()) for rank in report.ranks)
    return replace(report, ranks=ranks, peak=report.peak._replace(memory=0), peaks={})


def _known(trace: Trace, report: Report) -> str:
    short = report.error is None and sum(map(len, trace.ranks)) <= MAX_RECOGNIZED_OPERATIONS
    found = recognize(trace) if short else None
    return f"{found.text[0].upper()}{found.text[1:]}" if found is not None else ""


def _marks(
    rank: int, trace: Trace, stream: Sequence[int], memory: Sequence[int], number: int, step: Sequence[int]
) -> list[Mark]:
    steps, ops = trace.costs.steps, trace.ranks[rank]
    # One figure for each event that the referee has seen, and one for the end.
    known = iter(memory[:-1])
    called = list(clocks(ops, trace.costs)) if any(stream) else []
    awaited = {op.args[0]: steps(op.end) for op in ops if op.name == "await"}
    again = recomputed(ops)
    marks: list[Mark] = []
    letters = [kind[:1].upper() if kind in trace.costs.kinds else "" for kind in trace.setting.kinds]
    for i, op in enumerate(ops):
        if op.name in TIMED:
            mark = Mark(rank, op, steps(op.start), steps(op.end), next(known, None), i, number + len(marks))
            if letters and type(op.layer) is int and 0 <= op.layer < len(letters):
                mark = mark._replace(kind=letters[op.layer])
            if stream[i]:
                mark = mark._replace(stream=stream[i], called=steps(called[i]), awaited=awaited.get(i))
            if i in again:
                mark = mark._replace(again=True)
            marks.append(mark._replace(step=step[i]) if i < len(step) else mark)
    return marks


def _slow(trace: Trace, rank: int) -> str:
    factor = trace.costs.slow.get(rank, 1)
    return "" if factor == 1 else str(factor)


def awaited_before(ops: Sequence[Op], marks: Iterable[Mark]) -> dict[int, Mark]:
    """By index of an operation: the call for whose end its rank waited before the operation."""
    at = {mark.place: mark for mark in marks}
    found: dict[int, Mark] = {}
    last: Mark | None = None
    for i, op in enumerate(ops):
        if op.name == "await":
            call = at[op.args[0]]
            last = call if last is None or call.end > last.end else last
        elif i in at and not at[i].stream:
            if last is not None and last.end >= at[i].start:
                found[i] = last
            last = None
    return found


def idle_between(marks: Sequence[Mark], end: float, awaited: Mapping[int, Mark] | None = None) -> Iterator[Gap]:
    """The gaps before, between and after the computations of one rank."""
    clock = 0.0
    for mark in in_time(mark for mark in marks if not mark.stream):
        if mark.start > clock:
            yield Gap(clock, mark.start, mark, (awaited or {}).get(mark.place))
        clock = max(clock, mark.end)
    if end > clock:
        yield Gap(clock, end, None)


def _spans(marks: Sequence[Mark], samples: Sequence[Sample], memory: Sequence[int], end: float) -> Iterator[MemorySpan]:
    """Memory lasts from the end of the previous operation to the end of this one, which finds it. An overlapped call
    finds the memory at the time when it is made."""
    ends = [mark.end if mark.called is None else mark.called for mark in marks[: len(memory) - 1]]
    if len(memory) == len(marks) + 1:
        ends.append(end)
    clock = 0.0
    for until, kinds, in_all in zip(ends, samples, memory, strict=False):
        yield MemorySpan(clock, until, kinds, in_all)
        clock = until


Needs = Sequence[Sequence[int]]
"""By number of an event, the numbers of the events whose results it uses."""


def needs(scene: Scene) -> Needs:
    """The events whose results each event uses, directly or through operations that take no time.

    A receive needs its send. A member of a collective here has only its own needs; it needs the others' contributions
    through the group.
    """
    found: list[tuple[int, ...]] = [()] * sum(len(lane.marks) for lane in scene.lanes)
    for lane, ops in zip(scene.lanes, scene.trace.ranks, strict=True):
        events = {mark.place: mark for mark in lane.marks}
        makers: dict[int, tuple[int, ...]] = {}
        for i, op in enumerate(ops):
            if op.name in ("store", "delete"):
                continue
            used = tuple(dict.fromkeys(maker for number in op.inputs for maker in makers.get(number, ())))
            if i in events:
                found[events[i].number] = used
                used = (events[i].number,)
            makers.update((number, used) for number in op.outputs)
    for link in scene.links:
        if link.receive is not None:
            found[link.receive.number] = (*found[link.receive.number], link.send.number)
    return found
