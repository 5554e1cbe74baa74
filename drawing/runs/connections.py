"""What belongs together in a run: sends and receives, the calls of a collective, the operations of a stream."""

from collections import Counter, deque
from collections.abc import Iterator, Sequence

from lib import COLLECTIVES, LANES, Op, Trace, computing, group_of

from .marks import LaneMarks, Link, Mark, Tie


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
"""A kind of stream, and the group that it belongs to where each group has its own."""


def streams_of(trace: Trace) -> tuple[tuple[str, ...], list[list[int]]]:
    """The streams that occur, computation first ('compute', 'network', and 'network 2' where groups have their own);
    and for each rank, the number of every operation's stream among them."""
    rows = [[_key(op, trace) for op in ops] for ops in trace.ranks]
    used = [{kind: _of_kind(kind, row) for kind in KINDS} for row in rows]
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


def _of_kind(kind: str, row: list[Key | None]) -> list[Key]:
    """The streams of a kind, each once; by text, since a group of a folded run begins with the name of an axis."""
    return sorted({key for key in row if key is not None and key[0] == kind}, key=str)
