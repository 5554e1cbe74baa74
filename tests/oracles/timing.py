"""Times of a trace as a longest path, in a few plain lines that know nothing of lanes, meetings or mailboxes."""

from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

from lib import Op, Trace

COLLECTIVES = ("allreduce", "allgather", "scatterreduce", "dispatch", "collect")

Place = tuple[int, int]


def retimed(trace: Trace) -> Trace:
    """The trace with the start and the end of every operation worked out again; each takes as long as it says.

    All starts are 0 at first, and grow until each is as late as everything that it waits for. Where operations wait for
    each other in a circle, they grow beyond all of the work, and that is the end of it.
    """
    work = sum(op.end - op.start for ops in trace.ranks for op in ops)
    overlap, by_group = trace.costs.overlap, trace.costs.lanes == "group"
    members, sender = _meetings(trace), _messages(trace)
    ready: dict[Place, int] = defaultdict(int)
    ends: dict[Place, int] = defaultdict(int)
    before: Any = None
    while (ready, ends) != before and max(ends.values(), default=0) <= work:
        before = dict(ready), dict(ends)
        rows = [
            _rank(rank, ops, overlap, by_group, members, sender, ready, ends) for rank, ops in enumerate(trace.ranks)
        ]
    return replace(trace, ranks=tuple(rows))


def _rank(
    rank: int, ops: Any, overlap: bool, by_group: bool, members: Any, sender: Any, ready: Any, ends: Any
) -> tuple[Op, ...]:
    clock, lanes, made, rows = 0, defaultdict[object, int](int), dict[int, int](), []
    for i, op in enumerate(ops):
        start = clock
        if op.name == "await":
            clock = max(clock, ends[rank, op.args[0]])
            rows.append(op._replace(start=start, end=clock))
            continue
        lane = (op.args or (None,))[0] if by_group and op.name in COLLECTIVES else None
        runs_beside = overlap and op.name in (*COLLECTIVES, "pass_to")
        if runs_beside:
            start = max(clock, lanes[lane], *(made.get(number, 0) for number in op.inputs), 0)
        if op.name == "receive":
            start = max(clock, ends[sender[rank, i]]) if (rank, i) in sender else clock
        if op.name in COLLECTIVES:
            ready[rank, i] = start
            start = max(ready[place] for place in members[rank, i])
        ends[rank, i] = end = start + op.end - op.start
        if runs_beside:
            lanes[lane] = end
            made.update(dict.fromkeys(op.outputs, end))
        else:
            clock = end
        rows.append(op._replace(start=start, end=end))
    return tuple(rows)


def _meetings(trace: Trace) -> dict[Place, list[Place]]:
    """By rank and index of a collective: those of all members, the k-th call of each in the group."""
    together: dict[Any, list[Place]] = defaultdict(list)
    came: Counter[Any] = Counter()
    for rank, ops in enumerate(trace.ranks):
        for i, op in enumerate(ops):
            if op.name in COLLECTIVES:
                group = op.args[0] if op.args else None
                together[group, came[rank, group]].append((rank, i))
                came[rank, group] += 1
    return {place: places for places in together.values() for place in places}


def _messages(trace: Trace) -> dict[Place, Place]:
    """By rank and index of a receive: those of the `pass_to`, the k-th of a tag from one rank to another."""
    sent: dict[Any, list[Place]] = defaultdict(list)
    for rank, ops in enumerate(trace.ranks):
        for i, op in enumerate(ops):
            if op.name == "pass_to":
                sent[rank, op.args[0], op.args[1:]].append((rank, i))
    found = {}
    for rank, ops in enumerate(trace.ranks):
        for i, op in enumerate(ops):
            if op.name == "receive" and sent[op.args[0], rank, op.args[1:]]:
                found[rank, i] = sent[op.args[0], rank, op.args[1:]].pop(0)
    return found
