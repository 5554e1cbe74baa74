"""Pairs the sends of a run with their receives, and the calls that make up each collective."""

from collections import Counter, deque
from collections.abc import Iterator, Sequence

from lib import COLLECTIVES, group_of

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
