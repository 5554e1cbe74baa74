"""How much memory one rank needs over a run: what is stored, and what is not stored but used later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .trace import TIMED, Op


class Profile(NamedTuple):
    """One rank's memory in elements: at the start of each event and, last, at the end of the run.

    `hidden` numbers the values that were kept outside the dictionaries while an event went by;
    `left` those stored when the run ends.
    """

    memory: list[int]
    hidden: list[int]
    left: set[int]


def profile(ops: Sequence[Op], sizes: Sequence[int]) -> Profile:
    """Charges each value from when it is made to its last use, and while it is stored. `sizes` are by number.

    A final weight counts as used to the end. Between events nothing is sampled: what an operation makes is
    counted from the next event on, as in the original puzzles.
    """
    last = [-1] * len(sizes)
    for i, op in enumerate(ops):
        for number in op.used:
            last[number] = i
    for op in ops:
        if op.name == "set_final_weight":
            last[op.used[0]] = len(ops)

    charged = 0
    samples: list[int] = []
    places = [0] * len(sizes)
    stored: dict[tuple[object, ...], int] = {}
    loose: set[int] = set()
    hidden: dict[int, None] = {}

    for i, op in enumerate(ops):
        name = op.name
        if name in TIMED:
            samples.append(charged)
            if loose:
                hidden.update((number, None) for number in loose if i < last[number] < len(ops))
        vacated = -1
        if name == "store":
            (number,) = op.used
            vacated = stored.get(op.args, -1)
            stored[op.args] = number
            places[number] += 1
            loose.discard(number)
        elif name == "delete":
            vacated = stored.pop(op.args)
        else:
            for number in op.made:
                if last[number] > i:
                    charged += sizes[number]
                    loose.add(number)
            for number in op.used:
                if last[number] == i and not places[number]:
                    charged -= sizes[number]
                    loose.discard(number)
                    last[number] = -1  # a message may name a value twice
        if vacated >= 0:
            places[vacated] -= 1
            if not places[vacated]:
                if last[vacated] > i:
                    loose.add(vacated)
                else:
                    charged -= sizes[vacated]
    samples.append(charged)
    return Profile(samples, sorted(hidden), set(stored.values()))
