"""Explains a peak: every value that is charged at that moment, and when it is read again, if ever."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lib.costs import Costs
from lib.lanes import clocks
from lib.trace import Op
from lib.values.base import Value
from lib.values.kinds import OptState

from .memory import Profile
from .rank_state import RankState


class Item(NamedTuple):
    """One value that is charged at the peak.

    `fate` says when it is read: "now", by the event that starts at the peak; "later"; "kept", by the next step only
    (a final weight, an updated optimizer state); "never". `line` is where it was made, 0 if unknown; `read` the start
    in ticks of the next operation that reads it, None if there is none.
    """

    value: Value
    elements: int
    stored: bool
    fate: str
    line: int
    read: int | None


class PeakContents(NamedTuple):
    """The peak of a run: its elements, rank and time in ticks, the event that starts then (None: the end of the run),
    and what is charged, by which costs. The elements of the items add up to `memory`."""

    memory: int
    rank: int
    tick: int
    event: Op | None
    items: tuple[Item, ...]
    costs: Costs


def peak_contents(ranks: Sequence[RankState], profiles: Sequence[Profile], costs: Costs) -> PeakContents:
    """What the peak of a run consists of: the first moment with the most memory, on the first rank that has it."""
    peaks = [max(prof.memory) for prof in profiles]
    rank = peaks.index(max(peaks))
    return _contents(ranks[rank], profiles[rank], costs)


def _contents(state: RankState, prof: Profile, costs: Costs) -> PeakContents:
    ops, lives = state.done, prof.lifetimes
    times = list(clocks(ops, costs))
    memory = max(prof.memory)
    sample = prof.memory.index(memory)
    at = lives.events[sample] if sample < len(lives.events) else lives.end
    event = ops[at] if at < lives.end else None
    tick = times[at] if event else max((ops[i].end for i in lives.events), default=0)
    stored = {number for number, after, until in lives.stored if after < at <= until}
    charged = [number for number, after, until in lives.held if after < at <= until]
    reads = _next_reads(ops, at)
    final = {number for op in ops[:at] if op.name == "set_final_weight" for number in op.used}
    lines = {number: op.line for op in ops for number in op.made}
    items = []
    for number in charged:
        value, read = state.values[number], reads.get(number)
        needed = number in final or (type(value) is OptState and value.step > 0)
        fate = ("kept" if needed else "never") if read is None else "now" if read == at else "later"
        next_read = None if read is None else times[read]
        items.append(Item(value, value.memory(costs), number in stored, fate, lines[number], next_read))
    return PeakContents(memory, state.rank, tick, event, tuple(items), costs)


def _next_reads(ops: Sequence[Op], at: int) -> dict[int, int]:
    """By number: the first operation from `at` on that reads the value."""
    return {number: i for i, number in reversed(list(_reads(ops, at)))}


def _reads(ops: Sequence[Op], at: int) -> Iterator[tuple[int, int]]:
    for i in range(at, len(ops)):
        if ops[i].name != "store":
            for number in ops[i].used:
                yield i, number
