"""The scene of a trace: operations, idle gaps, messages, collectives and memory, with times in steps; the rows of its
picture; and the colours of its operations.

Nothing is judged here: memory, waits and the critical path come from the referee's report, ticks per step from lib.

A row is one rank; of more than 16 ranks, all ranks that do the same, with a count. Two ranks share a row if, one
operation after the other, the following is equal:

- the operation, its layer, its training step, whether it is computed again, when it starts and ends, in which stream,
  when its call was made and awaited;
- its microbatches, except for their numbers: each rank's are numbered in the order in which they occur on it;
- of a message: its tag, when it was sent and read, and the row of the rank at the other end;
- of a collective: how many of its members are in each row;
- of a wait: when it is, and the operation that ended it, with the row of its rank;

and if their memory, by kind, is equal at all times. So an arrow or a line between two rows stands for one at each of
their ranks. The rows are found by refinement: beginning with ranks whose own operations are equal, a row is split as
long as its ranks differ in the rows of those that they communicate with.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

from drawing.palette import CALLS, INK, OPERATIONS, PAPER, SOFT, STROKE, batch_colour, layer_colour, mix
from lib import (
    COLLECTIVES,
    LANES,
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
    computing,
    event_steps,
    group_of,
    halves,
    memory_by_kind,
    old_versions,
    referee,
    trace_of,
)
from lib.ledger.algebra import consecutive, named
from lib.pipelines import recognize, recomputed

MESSAGES = ("pass_to", "receive")


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
    stream: int = 0
    """The index of its stream: 0 is computation."""
    called: float | None = None
    """When an overlapped call was made."""
    awaited: float | None = None
    """When its rank receives the result; None before it is awaited."""
    again: bool = False
    """True for a forward whose result is recomputed."""
    step: int | None = None
    """Its training step, in a run of several."""
    old: bool = False
    """A forward with weights that are older than its data."""
    kind: str = ""
    """The letter of its layer's kind, if it differs from the kind in the costs."""

    @property
    def layer_text(self) -> str:
        """Its layer, with the letter of its kind: '3', '0E'."""
        return f"{self.op.layer}{self.kind}"

    @property
    def partner(self) -> int | None:
        """The rank at the other end of a message."""
        args = self.op.args
        known = self.op.name in MESSAGES and args and type(args[0]) is int
        return args[0] if known else None

    @property
    def tag(self) -> int:
        """The tag of a message."""
        args = self.op.args
        return args[1] if self.op.name in MESSAGES and len(args) > 1 and type(args[1]) is int else 0


class Link(NamedTuple):
    """A message; `receive` is None if it was never read."""

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


class Gap(NamedTuple):
    """Idle time, up to the mark `before`, or to the end of the run if that is None.

    `awaited` is the rank's own call that ended it; `stuck` is the call in which the rank is stuck: 'in receive() on
    line 12'.
    """

    start: float
    end: float
    before: Mark | None
    awaited: Mark | None = None
    stuck: str = ""


class Band(NamedTuple):
    """A part of one stream of a rank in which all operations belong to one training step."""

    step: int
    start: float
    end: float


class MemorySpan(NamedTuple):
    """Memory from one moment to another: by kind, and in total."""

    start: float
    end: float
    kinds: Sample
    memory: int


def in_time(marks: Iterable[Mark]) -> list[Mark]:
    """In order of time. In measured times, a message may be received early and used late."""
    return sorted(marks, key=lambda mark: mark.start)


class LaneMarks(NamedTuple):
    """One rank's part: its operations in program order, where it is idle, and its memory."""

    rank: int
    marks: tuple[Mark, ...]
    gaps: tuple[Gap, ...]
    memory: tuple[MemorySpan, ...]
    slow: str = ""
    """How many times slower than others it computes: '2', '3/2'."""

    def on(self, stream: int) -> list[Mark]:
        """The operations of one stream, in order of time."""
        return in_time(mark for mark in self.marks if mark.stream == stream)

    def bands(self, stream: int, end: float) -> list[Band]:
        """The training steps of one stream, in order of time, up to the `end`; empty in a run of one step.

        Idle time after the end of a step belongs to the next step.
        """
        runs = [(step, list(marks)) for step, marks in groupby(self.on(stream), key=lambda mark: mark.step)]
        borders = [0.0, *(marks[-1].end for _, marks in runs[:-1]), end]
        return [
            Band(step, start, until)
            for (step, _), start, until in zip(runs, borders, borders[1:], strict=False)
            if step is not None
        ]


def links_between(lanes: Sequence[LaneMarks]) -> Iterator[Link]:
    """Sends and receives, paired in order for each sender, receiver and tag."""
    reads: dict[tuple[int, int, int], deque[Mark]] = {}
    for lane in lanes:
        for mark in lane.marks:
            if mark.op.name == "receive" and mark.partner is not None:
                reads.setdefault((mark.partner, lane.rank, mark.tag), deque()).append(mark)
    for lane in lanes:
        for mark in lane.marks:
            to = mark.partner
            if mark.op.name == "pass_to" and to is not None and 0 <= to < len(lanes):
                read_by = reads.get((lane.rank, to, mark.tag))
                yield Link(mark, to, read_by.popleft() if read_by else None)


def ties_between(lanes: Sequence[LaneMarks]) -> Iterator[Tie]:
    """Collectives: the n-th calls of a group's members belong together."""
    calls: dict[tuple[tuple[int, ...] | None, int], list[Mark]] = {}
    for lane in lanes:
        count: Counter[tuple[int, ...] | None] = Counter()
        for mark in lane.marks:
            if mark.op.name in COLLECTIVES:
                group = group_of(mark.op)
                calls.setdefault((group, count[group]), []).append(mark)
                count[group] += 1
    for members in calls.values():
        first = members[0]
        together = tuple(mark for mark in members if mark[2:4] == first[2:4] and mark.op.name == first.op.name)
        if len(together) > 1:
            yield Tie(first.op.name, first.start, first.end, together)


KINDS = tuple(dict.fromkeys(LANES.values()))

Key = tuple[str, tuple[int, ...] | None]
"""A kind of stream, and its group if each group has its own."""


def streams_of(trace: Trace) -> tuple[tuple[str, ...], list[list[int]]]:
    """The streams in a run, computation first ('compute', 'network', and 'network 2' if groups have their own); and for
    each rank, the index of every operation's stream."""
    rows = [[_key(op, trace) for op in ops] for ops in trace.ranks]
    # Sorted as text, since the group of all ranks is None.
    found = [sorted({key for key in row if key is not None}, key=str) for row in rows]
    used = [{kind: [key for key in keys if key[0] == kind] for kind in KINDS} for keys in found]
    most = {kind: max(len(keys[kind]) for keys in used) for kind in KINDS}
    names = ("compute", *(f"{kind} {n + 1}" if n else kind for kind in KINDS for n in range(most[kind])))
    numbers = [
        {key: names.index(kind) + n for kind, keys in by_kind.items() for n, key in enumerate(keys)} for by_kind in used
    ]
    return names, [[number[key] if key else 0 for key in row] for row, number in zip(rows, numbers, strict=True)]


def _key(op: Op, trace: Trace) -> Key | None:
    """The stream of an operation; None for computation."""
    if computing(op, trace.costs):
        return None
    return LANES[op.name], group_of(op) if trace.costs.lanes == "group" and op.name != "pass_to" else None


# --- Rows ---

Waits = Sequence[Mapping[int, tuple[int, int]]]
"""By rank and place of an event: rank and place of the event that it waited for."""


class MarkRow(NamedTuple):
    """One row: its ranks, which all do what the `lane` of the first one shows."""

    lane: LaneMarks
    ranks: tuple[int, ...]

    @property
    def label(self) -> str:
        """'rank 0', 'rank 0 x64', 'rank 3, 2x slow'."""
        slow = f", {self.lane.slow}x slow" if self.lane.slow else ""
        return f"rank {self.lane.rank}{f' x{len(self.ranks)}' if len(self.ranks) > 1 else ''}{slow}"

    @property
    def all(self) -> str:
        """'rank 0', 'ranks 0-63': names what is true of all ranks in the row."""
        return named("rank", self.ranks)

    @property
    def first(self) -> str:
        """'rank 0', 'rank 0 (like ranks 1-63)': names what differs in the numbers of peers or microbatches."""
        like = f" (like {named('rank', self.ranks[1:])})" if len(self.ranks) > 1 else ""
        return f"rank {self.lane.rank}{like}"


@dataclass(frozen=True)
class MarkRows:
    """The rows of a picture, from top to bottom, in the order of their first ranks."""

    every: tuple[MarkRow, ...]
    places: tuple[int, ...]
    """By rank: the number of its row."""
    _all_lanes: Sequence[LaneMarks]

    @property
    def are_shared(self) -> bool:
        """True if a row stands for several ranks."""
        return len(self.every) < len(self.places)

    @property
    def lanes(self) -> tuple[LaneMarks, ...]:
        """The lanes that are drawn."""
        return tuple(row.lane for row in self.every)

    @property
    def marks(self) -> Iterator[Mark]:
        """The operations that are drawn."""
        return (mark for row in self.every for mark in row.lane.marks)

    def of(self, rank: int) -> MarkRow:
        """The row of a rank."""
        return self.every[self.places[rank]]

    def is_above(self, partner: int | None, rank: int) -> bool:
        """True if the `partner` of a rank, if it has one, is in a row above it."""
        if partner is None:
            return False
        exists = 0 <= partner < len(self.places)  # a wrong run may name any rank
        return (self.places[partner] if exists else partner) < self.places[rank]

    def shown(self, mark: Mark) -> Mark:
        """The drawn operation for this one: that of the first rank in its row."""
        own, lane = self._all_lanes[mark.rank], self.of(mark.rank).lane
        return mark if own is lane else lane.marks[mark.number - own.marks[0].number]

    def links(self, links: Iterable[Link]) -> tuple[Link, ...]:
        """The drawn messages: messages of a drawn rank to another row."""
        return tuple(
            link
            for link in links
            if self.of(link.source).lane.rank == link.source
            and (len(self.of(link.source).ranks) == 1 or self.places[link.source] != self.places[link.target])
        )

    def ties(self, ties: Iterable[Tie]) -> tuple[Tie, ...]:
        """The drawn collectives, each once, with drawn operations as members, from top to bottom."""
        found: dict[tuple[int, ...], Tie] = {}
        for tie in ties:
            shown = {mark.number: mark for mark in map(self.shown, tie.members)}
            numbers = tuple(sorted(shown))
            found.setdefault(numbers, tie._replace(members=tuple(shown[number] for number in numbers)))
        return tuple(found.values())


def rows_of(
    lanes: Sequence[LaneMarks], links: Sequence[Link], ties: Sequence[Tie], waits: Waits, shared: bool
) -> MarkRows:
    """The rows of a run; without `shared`, and of at most 16 ranks, one for each."""
    many = shared and len(lanes) > 16
    kinds = kinds_of(lanes, links, ties, waits) if many else range(len(lanes))
    members: dict[int, list[int]] = {}
    for rank, kind in enumerate(kinds):
        members.setdefault(kind, []).append(rank)
    numbers = {kind: number for number, kind in enumerate(members)}
    rows = tuple(MarkRow(lanes[ranks[0]], tuple(ranks)) for ranks in members.values())
    return MarkRows(rows, tuple(numbers[kind] for kind in kinds), lanes)


def kinds_of(lanes: Sequence[LaneMarks], links: Sequence[Link], ties: Sequence[Tie], waits: Waits) -> list[int]:
    """By rank: a number, which is the same for ranks that share a row."""
    other_end = {link.send.number: link.received for link in links}
    other_end |= {link.receive.number: link.sent for link in links if link.receive is not None}
    tie_at = {mark.number: number for number, tie in enumerate(ties) for mark in tie.members}
    at = {(mark.rank, mark.place): mark for lane in lanes for mark in lane.marks}
    causes = [{place: at[cause] for place, cause in waits[lane.rank].items()} for lane in lanes]
    own = [own_part(lane, other_end, causes[lane.rank]) for lane in lanes]
    peers: list[list[int]] = []  # the ranks at the other end of messages and of waits, in order
    for lane, waited in zip(lanes, causes):
        partners = (mark.partner for mark in lane.marks)
        peers.append([partner for partner in partners if partner is not None and 0 <= partner < len(lanes)])
        peers[-1] += [waited[mark.place].rank for mark in lane.marks if mark.place in waited]
    joined = [[tie_at.get(mark.number) for mark in lane.marks] for lane in lanes]
    kinds, before = numbered(own), 0
    while before < (before := len(set(kinds))) < len(lanes):
        meetings = [*numbered(tuple(sorted(kinds[mark.rank] for mark in tie.members)) for tie in ties), None]
        kinds = numbered(
            (kind, tuple(kinds[peer] for peer in near), tuple(meetings[-1 if tie is None else tie] for tie in met))
            for kind, near, met in zip(kinds, peers, joined)
        )
    return kinds


def numbered(things: Iterable[Hashable]) -> list[int]:
    """For each thing a number; equal things have the same."""
    found: dict[Hashable, int] = {}
    return [found.setdefault(thing, len(found)) for thing in things]


def own_part(lane: LaneMarks, other_end: Mapping[int, float | None], causes: Mapping[int, Mark]) -> Hashable:
    """The properties of a rank that can be compared before it is known which ranks are equal."""
    batches: dict[int, int] = {}
    first = lane.marks[0].number if lane.marks else 0
    events = tuple(own_event(mark, batches, other_end, causes.get(mark.place)) for mark in lane.marks)
    gaps = (
        (gap.start, gap.end, *(mark and mark.number - first for mark in (gap.before, gap.awaited))) for gap in lane.gaps
    )
    return events, tuple(gaps), lane.memory


def own_event(
    mark: Mark, batches: dict[int, int], other_end: Mapping[int, float | None], cause: Mark | None
) -> Hashable:
    """An operation without numbers of ranks; its microbatches are numbered in order of occurrence."""
    op = mark.op
    seen = frozenset(batches.setdefault(batch, len(batches)) for batch in sorted(op.batches))
    group = group_of(op) if op.name in COLLECTIVES else None
    when = (mark.start, mark.end, mark.called, mark.awaited, other_end.get(mark.number))
    why = cause and (cause.op.name, cause.op.layer, cause.start)
    facts = (mark.stream, mark.step, mark.again, mark.memory, mark.tag, group and len(group))
    return op.name, op.layer, seen, when, facts, why


# --- Colours ---

COLOURS = ("layer", "microbatch", "operation")
"""What the colours may show."""

HOLLOW = 2.0
"""Border width of a hollow shape; if the shape is narrow, only the border is drawn."""

Paint = tuple[str, str, float]
"""Fill, stroke and stroke width."""


def tinted(hue: str) -> Paint:
    return mix(hue, PAPER, 0.62), PAPER, 0.5


def full(hue: str) -> Paint:
    return hue, PAPER, 0.5


PAINTS: dict[str, Callable[[str], Paint]] = {
    "forward": tinted,
    "loss": lambda hue: (INK, PAPER, 0.8),
    "backward": full,
    "backward_input": full,
    "backward_weight": lambda hue: (mix(hue, PAPER, 0.3), PAPER, 0.5),
    "outer_update": lambda hue: (mix(hue, PAPER, 0.6), mix(hue, INK, 0.15), HOLLOW),
    "tier_update": lambda hue: (mix(hue, PAPER, 0.6), mix(hue, INK, 0.15), HOLLOW),
    "update": lambda hue: (PAPER, mix(hue, INK, 0.15), HOLLOW),
}
"""From the hue of an operation to its paint; all others are WIRE."""

WIRE: Paint = STROKE, PAPER, 0.5


LIKE = {"keys": "forward", "attend": "forward", "attend_backward": "backward_input", "keys_backward": "backward_weight"}
"""Operations of attention, and the operations whose colour they have."""


def require_colour(by: str) -> None:
    if by not in COLOURS:
        raise PuzzleError(f"colour is {', '.join(map(repr, COLOURS[:-1]))} or {COLOURS[-1]!r}; got {by!r}")


@dataclass(frozen=True)
class Colouring:
    """What the colours of a run show, and how its boxes are labelled."""

    by: str
    layers: int
    bars: Mapping[tuple[int, int], float]
    """By rank and layer: the length of the bar that marks its chunk, as a share of the box; empty without chunks."""
    varied: frozenset[int]
    """The ranks that compute more than one layer."""

    @classmethod
    def of(cls, by: str, layers: int, lanes: Iterable[LaneMarks]) -> Colouring:
        """The colouring of a run."""
        computed = {
            lane.rank: {
                op.layer
                for mark in lane.marks
                for op in halves(mark.op)
                if op.name == "forward" and op.layer is not None
            }
            for lane in lanes
        }
        varied = frozenset(rank for rank, own in computed.items() if len(own) > 1)
        return cls(by, layers, chunk_bars(computed) if by != "layer" else {}, varied)

    @property
    def shows_batches(self) -> bool:
        """True if a box is labelled with its microbatch first."""
        return self.by != "layer"

    def paint(self, mark: Mark) -> Paint:
        """Fill, stroke and stroke width of a mark."""
        name = LIKE.get(mark.op.name, mark.op.name)
        if self.by == "operation" and name in OPERATIONS:
            return full(OPERATIONS[name])
        return PAINTS[name](self.hue(mark)) if name in PAINTS else WIRE

    def hue(self, mark: Mark) -> str:
        """The full colour of a mark. Of several microbatches the first counts."""
        if self.by == "layer":
            return layer_colour(mark.op.layer or 0, self.layers)
        if self.by == "microbatch" and mark.op.batches:
            return batch_colour(min(mark.op.batches))
        return SOFT

    def bar(self, mark: Mark) -> float:
        """The length of the bar on a mark, as a share of its box: 0 in the first chunk of a rank, 1 in the last."""
        shows = mark.op.layer is not None and LIKE.get(mark.op.name, mark.op.name) in OPERATIONS
        return self.bars.get((mark.rank, mark.op.layer or 0), 0.0) if shows else 0.0

    def layer_text(self, mark: Mark) -> str:
        """The layer's number, if its rank has several layers."""
        return mark.layer_text if mark.rank in self.varied else ""


def chunk_bars(computed: Mapping[int, Iterable[int]]) -> dict[tuple[int, int], float]:
    """By rank and layer: the position of its chunk between the first of its rank (0) and the last (1).

    A chunk is a run of consecutive layers. If ranks have several, the shortest run is the size of all, because the last
    rank of a V has two adjacent chunks.
    """
    runs = {rank: consecutive(layers) for rank, layers in computed.items()}
    if max(map(len, runs.values()), default=0) < 2:
        return {}
    size = min(len(run) for found in runs.values() for run in found)
    return {
        (rank, layer): i / (len(chunks) - 1)
        for rank, found in runs.items()
        if len(chunks := [run[at : at + size] for run in found for at in range(0, len(run), size)]) > 1
        for i, chunk in enumerate(chunks)
        for layer in chunk
    }


# --- The scene ---


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


def facts_of(error: PuzzleError | None) -> Mapping[str, Any]:
    """The facts of a refusal, by name; empty if there are none."""
    return getattr(error and error.problem, "facts", {})


def _ended_in(error: DeadlockError, scene: Scene) -> Scene:
    """The scene of a deadlock, with room at its end for the calls in which the ranks are stuck."""
    end = max(scene.end * 1.4, scene.end + 1)
    facts = facts_of(error)
    stuck = {rank: f"in {call} on line {facts['lines'][rank]}" for rank, call in facts.get("waits", {}).items()}
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
    # To recognize a longer run would take longer than to draw it.
    is_short = report.error is None and sum(map(len, trace.ranks)) <= 20_000
    found = recognize(trace) if is_short and not times_only else None
    known = f"{found.text[0].upper()}{found.text[1:]}" if found is not None else ""
    return Scene(trace, report, tuple(lanes), links, ties, end, streams, colour, known)


def without_traffic(report: Report) -> Report:
    nothing = report.sent._replace(busiest=0, total=0, between=0, by_rank=((),) * len(report.ranks))
    return replace(report, sent=nothing)


def has_memory(report: Report) -> bool:
    return any(rank.memory for rank in report.ranks)


def without_memory(report: Report) -> Report:
    ranks = tuple(rank._replace(memory=()) for rank in report.ranks)
    return replace(report, ranks=ranks, peak=report.peak._replace(memory=0), peaks={})


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


def needs(scene: Scene) -> Sequence[Sequence[int]]:
    """By number of an event, the numbers of those whose results it uses, directly or through what takes no time.

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


def sent_by_kind(scene: Scene, rank: int) -> dict[str, int]:
    """The elements that a rank sends by kind of call, in the order of the palette."""
    calls = scene.report.sent.by_rank[rank] if rank < len(scene.report.sent.by_rank) else ()
    found = {kind: sum(one.elements for one in calls if one.operation == kind) for kind in CALLS}
    return {kind: elements for kind, elements in found.items() if elements}
