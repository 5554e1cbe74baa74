"""Partial plans of the elimination under a memory cap: values on the border, cost, memory; and their Pareto filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from lib.layout.errors import LayoutError
from lib.layout.layouts.device_matrix import Ints

from .elimination import Table


class TooManyPlans(LayoutError):
    """A front has grown too large."""


@dataclass(frozen=True, eq=False)
class PartialPlans:
    """Partial choices: a row of `states` for each, with a column for each variable on the border.

    `excess` is how much more its values cost, with priced memory, than the best ones for the same border. `origin` has
    the earlier ones and, for each row here, its row there.
    """

    border: tuple[int, ...]
    states: NDArray[np.int16]
    cost: Table
    held: Table
    excess: Table
    origin: tuple[tuple[PartialPlans, Ints], ...] = ()

    def rows(self, chosen: Ints) -> PartialPlans:
        """Only these rows."""
        origin = tuple((partial, row[chosen]) for partial, row in self.origin)
        cost, held, excess = (each[chosen] for each in (self.cost, self.held, self.excess))
        return PartialPlans(self.border, self.states[chosen], cost, held, excess, origin)

    def on(self, border: tuple[int, ...]) -> PartialPlans:
        """The same rows with fewer variables on the border."""
        states = self.states[:, [self.border.index(v) for v in border]]
        return replace(self, border=border, states=states, origin=((self, np.arange(len(self.cost))),))

    def key(self, border: Sequence[int], sizes: Sequence[int]) -> Ints:
        """A number for each row: equal where the values of these variables are."""
        if prod(sizes[v] for v in border) >= 2**63:
            raise TooManyPlans(f"an exact plan would have to consider {len(border)} tensors and operators together")
        number = np.zeros(len(self.cost), dtype=np.int64)
        for v in border:
            number = number * sizes[v] + self.states[:, self.border.index(v)]
        return number

    def chosen(self, row: int, variables: int) -> list[int]:
        """The value of every variable in one row."""
        values = [0] * variables
        stack: list[tuple[PartialPlans, int]] = [(self, row)]
        while stack:
            partial, row = stack.pop()
            for v, state in zip(partial.border, partial.states[row].tolist()):
                values[v] = state
            stack += [(before, int(rows[row])) for before, rows in partial.origin]
        return values


def undominated(key: Ints, cost: Table, held: Table) -> Ints:
    """The rows that no other row with the same key beats in cost and memory: of those in order of cost, each that holds
    less than all before it."""
    order = np.lexsort((held, cost, key))
    place, held = key[order], held[order]
    number = np.cumsum(np.append(False, place[1:] != place[:-1]))[: len(order)]
    falling = held - number * 2 * (np.abs(held).max(initial=0) + 1)
    return np.asarray(order[np.append(True, falling[1:] < np.minimum.accumulate(falling)[:-1])[: len(order)]])
