"""Measures how much memory one rank needs over a run: what is stored, and what is not stored but used later."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from lib.communication.lanes import clocks
from lib.game.costs import Costs
from lib.trace.lifetimes import Lifetimes, Span
from lib.trace.ops import Op


class Profile(NamedTuple):
    """One rank's memory in elements: at the start of each event and, last, at the end of the run."""

    memory: list[int]
    lifetimes: Lifetimes


def profile(lives: Lifetimes, sizes: Sequence[int]) -> Profile:
    """Charges each value from when it is made to its last use, and while it is stored. `sizes` are by number.

    A final weight counts as used to the end. Between events nothing is sampled, as in the original puzzles.
    """
    return Profile(lives.sampled(lives.held, sizes), lives)


def lasting_peak(
    ops: Sequence[Op], sizes: Sequence[int], lives: Lifetimes, read: Mapping[int, int], costs: Costs
) -> int:
    """The most elements at once if training went on: what is loaded counts from the start on, what is
    sent until it is read. `read` has for each pass_to, by its index, the tick at which its message is received."""
    return max(lives.sampled(_lasting(ops, lives, read, costs), sizes))


def _lasting(ops: Sequence[Op], lives: Lifetimes, read: Mapping[int, int], costs: Costs) -> Iterator[Span]:
    loaded = {number for op in ops if op.name == "load_weights" for number in op.outputs}
    starts = list(clocks(ops, costs))
    under_way: dict[int, int] = {}  # by number: the last operation before the value has been read elsewhere
    for i, tick in read.items():
        before = bisect_left(starts, tick, lo=i) - 1
        for number in ops[i].inputs:
            under_way[number] = max(before, under_way.get(number, -1))
    for number, after, until in lives.held:
        needed = until > after
        yield number, -1 if needed and number in loaded else after, max(until, under_way.get(number, -1))
