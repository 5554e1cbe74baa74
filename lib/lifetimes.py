"""Accounts for what a rank holds: which values are stored, and from when to when each must exist.

Liveness analysis of one rank's operations, as a compiler does it for a straight program, with one addition: a value
that is stored in a dictionary lives until it is deleted or replaced, used or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from .trace import TIMED, Op


class Stored:
    """The values in one rank's dictionaries, by number. A place is a dictionary's name and a key in it; a value in
    two places is stored once."""

    __slots__ = ("_places", "_values")

    def __init__(self) -> None:
        self._values: dict[tuple[str, object], int] = {}
        self._places: dict[int, int] = {}

    def __contains__(self, number: object) -> bool:
        return number in self._places

    def store(self, place: tuple[str, object], number: int) -> int | None:
        """Puts a value in a place. Returns the number of the value that is stored no longer, if there is one."""
        values, places = self._values, self._places
        before = values.get(place)
        values[place] = number
        places[number] = places.get(number, 0) + 1
        return None if before is None else self._leave(before)

    def delete(self, place: tuple[str, object]) -> int | None:
        """Empties a place. Returns the number of the value that is stored no longer, if there is one.

        Raises:
            KeyError: the place is empty.
        """
        return self._leave(self._values.pop(place))

    def _leave(self, number: int) -> int | None:
        left = self._places.pop(number) - 1
        if not left:
            return number
        self._places[number] = left
        return None


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


def lifetimes(ops: Sequence[Op]) -> Lifetimes:
    """Follows one rank's operations once. They must store only what was made, and delete only what is stored."""
    end = len(ops)
    names, _, _, _, _, uses, makes, arguments, _ = zip(*ops) if ops else ((),) * 9
    made: dict[int, int] = {}
    until: dict[int, int] = {}
    loose: dict[int, int] = {}  # since when each value has been outside the dictionaries; of a stored one, the end
    inside: dict[int, int] = {}  # since when each stored value has been in them
    places = Stored()
    stored: list[Span] = []
    events: list[int] = []
    final: set[int] = set()
    hidden: set[int] = set()
    event = -1
    for i, name in enumerate(names):
        gone = None
        if name == "store":
            (number,) = uses[i]
            gone = places.store(arguments[i], number)
            if number not in inside:
                inside[number] = i
                if event > loose[number]:
                    hidden.add(number)
                loose[number] = end
        elif name == "delete":
            gone = places.delete(arguments[i])
        elif name == "await":
            # Under way, what a call brings and makes is held by the call, not hidden by the player.
            until.update(dict.fromkeys(uses[i], i))
            for number in makes[arguments[i][0]]:
                loose[number] = i
                hidden.discard(number)
        else:
            for number in uses[i]:
                until[number] = i
                if event > loose[number]:
                    hidden.add(number)
            if name in TIMED:
                event = i
                events.append(i)
            elif name == "set_final_weight":
                final.update(uses[i])
            for number in makes[i]:
                made[number] = until[number] = loose[number] = i
        if gone is not None:
            stored.append((gone, inside.pop(gone), i))
            until[gone] = loose[gone] = i
    stored += [(number, since, end) for number, since in inside.items()]
    until.update(dict.fromkeys((*inside, *final), end))
    held = list(zip(made, made.values(), until.values()))  # both are in the order of making
    return Lifetimes(end, events, held, stored, sorted(hidden - final), set(inside))
