"""The parts of a scene, with times in steps: operations, idle gaps and memory, and the connections between them."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from lib import COLLECTIVES, LANES, Op, Sample, Trace, computing, group_of

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


COMPUTE = "compute"
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
    names = (COMPUTE, *(f"{kind} {n + 1}" if n else kind for kind in KINDS for n in range(most[kind])))
    numbers = [
        {key: names.index(kind) + n for kind, keys in by_kind.items() for n, key in enumerate(keys)} for by_kind in used
    ]
    return names, [[number[key] if key else 0 for key in row] for row, number in zip(rows, numbers, strict=True)]


def _key(op: Op, trace: Trace) -> Key | None:
    """The stream of an operation; None for computation."""
    if computing(op, trace.costs):
        return None
    return LANES[op.name], group_of(op) if trace.costs.lanes == "group" and op.name != "pass_to" else None
