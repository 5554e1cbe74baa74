"""Streams of a rank: computation, and beside it communication and copies where they overlap with it."""

from lib import LANES, Op, Trace, computing, group_of

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
