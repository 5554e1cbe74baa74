"""Partial plans of the elimination: boundary values, cost, memory; and their Pareto filter."""

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

    `loads` has a row for each of `moments` and a column for each partial choice. `excess` is how much more its values
    cost, with priced loads, than the best ones for the same border. `origin` has the earlier ones and, for each row
    here, its row there.
    """

    border: tuple[int, ...]
    states: NDArray[np.int16]
    cost: Table
    excess: Table
    moments: Ints
    loads: Table
    origin: tuple[tuple[PartialPlans, Ints], ...] = ()

    def rows(self, chosen: Ints) -> PartialPlans:
        """Only these rows."""
        origin = tuple((partial, row[chosen]) for partial, row in self.origin)
        return PartialPlans(
            self.border,
            self.states[chosen],
            self.cost[chosen],
            self.excess[chosen],
            self.moments,
            self.loads[:, chosen],
            origin,
        )

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


def stacked(parts: Sequence[PartialPlans]) -> PartialPlans:
    """The rows of partial plans that have the same border, moments and origin."""
    if len(parts) == 1:
        return parts[0]
    return replace(
        parts[0],
        states=np.concatenate([part.states for part in parts]),
        cost=np.concatenate([part.cost for part in parts]),
        excess=np.concatenate([part.excess for part in parts]),
        loads=np.concatenate([part.loads for part in parts], axis=1),
        origin=tuple(
            (each[0][0], np.concatenate([rows for _, rows in each])) for each in zip(*(p.origin for p in parts))
        ),
    )


def undominated(key: Ints, cost: Table, loads: Table) -> Ints:
    """The rows that no other row with the same key beats in cost and in every load (a row of `loads` for each)."""
    order = np.lexsort((loads.sum(axis=0), cost, key))
    if len(loads) == 1 and len(order):
        # Within a key, in order of cost, a row stays if it holds less than all before it.
        place, load = key[order], loads[0, order]
        number = np.cumsum(np.append(False, place[1:] != place[:-1]))
        falling = load - number * 2 * (np.abs(load).max() + 1)
        return np.asarray(order[np.append(True, falling[1:] < np.minimum.accumulate(falling)[:-1])])
    kept = []
    while len(order):
        # The cheapest row of each key is not beaten; the rows that it beats are dropped.
        first = np.append(True, key[order[1:]] != key[order[:-1]])
        kept.append(order[first])
        best = kept[-1][np.cumsum(first) - 1]
        order = order[(loads[:, order] < loads[:, best]).any(axis=0)]
    return np.concatenate([*kept, order])
