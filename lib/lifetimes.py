"""Accounts for what a rank holds: which values are stored, and from when to when each must exist.

Liveness analysis of one rank's operations, as a compiler does it for a straight program, with one addition: a value
that is stored in a dictionary lives until it is deleted or replaced, used or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from .trace import TIMED, Columns, Op

Span = tuple[int, int, int]
"""A value's number, and its stay in indices of operations: after which one it is there, and until which one, which
still has it. The end of the run is the index past the last operation."""


class Lifetimes(NamedTuple):
    """One rank's values by number, and the indices of its operations between which they exist.

    `held`: each value from the operation that makes it to the last one that uses it, or to the end of its storage, if
    that is later; final weights to the end. `stored`: the times in a dictionary. `hidden`: the values that were
    kept outside the dictionaries while an event went by. `left`: those that are stored at the end.
    """

    end: int
    events: list[int]
    held: list[Span]
    stored: list[Span]
    hidden: list[int]
    left: set[int]

    def sampled(self, spans: Iterable[Span], sizes: Sequence[int] | Mapping[int, int]) -> list[int]:
        """The sum of the `sizes`, by number, of the values there at the start of each event and, last, at the end.

        Between events nothing is sampled: what an operation makes is counted from the next event on.
        """
        changes = [0] * (self.end + 2)
        for number, after, until in spans:
            size = sizes[number]
            changes[after + 1] += size
            changes[until + 1] -= size
        sums = list(accumulate(changes))
        return [sums[i] for i in self.events] + [sums[self.end]]


def lifetimes(ops: Sequence[Op] | Columns) -> Lifetimes:
    """Follows one rank's operations once. They must number the values that they make in order from 0, store only what
    was made, and delete only what is stored."""
    names, _, _, _, _, uses, makes, arguments, _ = ops if isinstance(ops, Columns) else Columns.of(ops)
    end = len(names)
    # By number of a value:
    made = [i for i, numbers in enumerate(makes) for _ in numbers]
    until = made[:]
    loose = made[:]  # since when it has been outside the dictionaries; of a stored one, the end
    since = made[:]  # since when it has been in them
    places = [0] * len(made)  # in how many
    kept: dict[tuple[str, object], int] = {}  # by place: what is there now
    stored: list[Span] = []
    events: list[int] = []
    final: set[int] = set()
    hidden: set[int] = set()
    event = -1
    for i, name in enumerate(names):
        if name == "store":
            (number,) = uses[i]
            gone = kept.get(arguments[i])
            kept[arguments[i]] = number
            if not places[number]:
                since[number] = i
                if event > loose[number]:
                    hidden.add(number)
                loose[number] = end
            places[number] += 1
            if gone is None:
                continue
        elif name == "delete":
            gone = kept.pop(arguments[i])
        else:
            if name == "await":
                # Under way, what a call brings and makes is held by the call, not hidden by the player.
                for number in uses[i]:
                    until[number] = i
                for number in makes[arguments[i][0]]:
                    loose[number] = i
                    hidden.discard(number)
                continue
            for number in uses[i]:
                until[number] = i
                if event > loose[number]:
                    hidden.add(number)
            if name in TIMED:
                event = i
                events.append(i)
            elif name == "set_final_weight":
                final.update(uses[i])
            continue
        places[gone] -= 1
        if not places[gone]:
            stored.append((gone, since[gone], i))
            until[gone] = loose[gone] = i
    left = set(kept.values())
    stored += [(number, since[number], end) for number in left]
    for number in left | final:
        until[number] = end
    held = list(zip(range(len(made)), made, until))
    return Lifetimes(end, events, held, stored, sorted(hidden - final), left)
