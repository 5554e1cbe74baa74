"""Streams of a rank: computation, and beside it communication and copies where they overlap with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lib import LANES, Op, Trace, computing, group_of

COMPUTE = "compute"

Key = tuple[str, tuple[int, ...] | None]
"""A kind of stream, and the group that it belongs to where each group has its own."""


def stream_names(trace: Trace) -> tuple[str, ...]:
    """The streams that occur, computation first: 'compute', 'network', and 'network 2' where groups have their own."""
    found: dict[str, int] = {}
    for rank in range(len(trace.ranks)):
        for kind, lanes in _by_kind(_lanes_of(rank, trace)):
            found[kind] = max(found.get(kind, 0), len(lanes))
    names = [kind if n == 0 else f"{kind} {n + 1}" for kind in _kinds(found) for n in range(found[kind])]
    return (COMPUTE, *names)


def streams_of(rank: int, trace: Trace, names: Sequence[str]) -> list[int]:
    """For each operation of a rank, the number of its stream in `names`."""
    numbers: dict[Key, int] = {}
    for kind, lanes in _by_kind(_lanes_of(rank, trace)):
        numbers.update((lane, names.index(kind) + n) for n, lane in enumerate(lanes))
    return [0 if computing(op, trace.costs) else numbers[_lane(op, trace)] for op in trace.ranks[rank]]


def _lane(op: Op, trace: Trace) -> Key:
    return LANES[op.name], group_of(op) if trace.costs.lanes == "group" and op.name != "pass_to" else None


def _lanes_of(rank: int, trace: Trace) -> set[Key]:
    return {_lane(op, trace) for op in trace.ranks[rank] if not computing(op, trace.costs)}


def _by_kind(lanes: set[Key]) -> Iterator[tuple[str, list[Key]]]:
    for kind in _kinds({kind for kind, _ in lanes}):
        yield kind, sorted((lane for lane in lanes if lane[0] == kind), key=lambda lane: lane[1] or ())


def _kinds(found: Sequence[str] | set[str] | dict[str, int]) -> list[str]:
    return [kind for kind in dict.fromkeys(LANES.values()) if kind in found]
