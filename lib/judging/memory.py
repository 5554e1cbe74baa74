"""How much memory one rank needs over a run: what is stored, and what is not stored but used later."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lib.trace import TIMED, Op


class Profile(NamedTuple):
    """One rank's memory in elements: at the start of each event and, last, at the end of the run.

    `hidden` numbers the values that were kept outside the dictionaries while an event went by;
    `left` those stored when the run ends.
    """

    memory: list[int]
    hidden: list[int]
    left: set[int]


def profile(ops: Sequence[Op], sizes: Sequence[int], read: Mapping[int, int] | None = None) -> Profile:
    """Charges each value from when it is made to its last use, and while it is stored. `sizes` are by number.

    A final weight counts as used to the end. Between events nothing is sampled: what an operation makes is
    counted from the next event on, as in the original puzzles.

    `read` tells for each pass_to, by its index, at which tick its message is received. With it, memory is counted
    as training without end would need it: what is loaded from the start on, what is sent until it is read.
    """
    last = [-1] * len(sizes)
    final: list[int] = []
    for i, op in enumerate(ops):
        for number in op.used:
            last[number] = i
        if op.name == "set_final_weight":
            final += op.used
    for number in final:
        last[number] = len(ops)

    charged = 0
    early: set[int] = set()
    on_the_wire: dict[int, list[int]] = {}
    if read is not None:
        for i, op in enumerate(ops):
            if op.name == "load_weights":
                early.update(number for number in op.made if last[number] > i)
        charged = sum(sizes[number] for number in early)
        starts = [op.start for op in ops]
        for i, tick in read.items():
            until = bisect_left(starts, tick, lo=i) - 1
            for number in ops[i].used:
                if until > last[number]:
                    last[number] = until
                    on_the_wire.setdefault(until, []).append(number)
    samples: list[int] = []
    places = [0] * len(sizes)
    stored: dict[tuple[object, ...], int] = {}
    loosened: list[int] = []
    hidden: set[int] = set()

    for i, (name, _, _, _, _, used, made, args, _) in enumerate(ops):
        vacated = -1
        if name == "store":
            (number,) = used
            vacated = stored.get(args, -1)
            stored[args] = number
            places[number] += 1
        elif name == "delete":
            vacated = stored.pop(args)
        else:
            if name in TIMED:
                samples.append(charged)
                if loosened:  # since the event before: what was loose at that one is known already
                    hidden.update(n for n in loosened if not places[n] and i < last[n] < len(ops))
                    loosened.clear()
            for number in made:
                if last[number] > i:
                    charged += 0 if number in early else sizes[number]
                    loosened.append(number)
            for number in used:
                if last[number] == i and not places[number]:
                    charged -= sizes[number]
                    last[number] = -1  # a message may name a value twice
        if vacated >= 0:
            places[vacated] -= 1
            if not places[vacated]:
                if last[vacated] > i:
                    loosened.append(vacated)
                else:
                    charged -= sizes[vacated]
        for number in on_the_wire.get(i, ()) if on_the_wire else ():
            if last[number] == i and not places[number]:
                charged -= sizes[number]
                last[number] = -1
    samples.append(charged)
    return Profile(samples, sorted(hidden), set(stored.values()))
