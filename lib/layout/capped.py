"""Least cost under a cap on a second sum: bounds by a price on memory, then all trade-offs that can still win.

The price (Lagrange 1797; Held and Karp 1971; Everett 1963) gives a lower bound and good plans. Values that no
better plan can have are struck out, and what is left is eliminated with Pareto fronts in place of minima: of
two partial choices with the same borders, one that is worse in cost and in memory is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .device_matrix import Ints
from .elimination import Elimination, Pairs, Table
from .errors import LayoutError

MOST = 200_000_000
"""Partial choices weighed at once, times the variables of each."""


def least(costs: Sequence[Table], memory: Sequence[Table], pairs: Pairs, cap: float | None) -> list[int]:
    """The values of least cost with memory of at most `cap`, which must be possible.

    Costs and memory are whole numbers, in tables of doubles.
    """
    free = Elimination(costs, pairs)
    chosen = free.best()
    if cap is None or _sum(memory, chosen) <= cap:
        return chosen
    chosen, price, lower = _priced(costs, memory, pairs, cap, chosen, free.value)
    best = _cost(costs, pairs, chosen)
    # A better plan is cheaper by at least the greatest common divisor of all costs.
    target = best - _step([*costs, *pairs.values()]) + 1e-9 * max(1.0, best)
    if lower > target:
        return chosen
    priced = Elimination([c + price * m for c, m in zip(costs, memory)], pairs)
    keep = [np.flatnonzero(table - price * cap <= target) for table in priced.through()]
    if not all(len(states) for states in keep):
        return chosen
    front = _Fronts(
        [c[k] for c, k in zip(costs, keep)],
        [m[k] for m, k in zip(memory, keep)],
        {(u, v): table[np.ix_(keep[u], keep[v])] for (u, v), table in pairs.items()},
        cap,
        target,
        price,
    ).best(priced, keep)
    return chosen if front is None else [int(keep[v][state]) for v, state in enumerate(front)]


def _step(tables: Sequence[Table]) -> int:
    """The greatest common divisor of all entries, whole numbers; 1 if all are zero."""
    return int(np.gcd.reduce([int(np.gcd.reduce(np.unique(table).astype(np.int64))) for table in tables])) or 1


def _priced(
    costs: Sequence[Table], memory: Sequence[Table], pairs: Pairs, cap: float, over: list[int], cost: float
) -> tuple[list[int], float, float]:
    """A good choice within the cap, the price that gives the best bound, and that bound.

    Walks the lower hull of (memory, cost) between a choice above the cap and one below.
    """
    under = Elimination([m + c * 1e-9 / (1 + c.max()) for c, m in zip(costs, memory)], {}).best()
    best, price, lower = under, 0.0, cost
    above, below = (_sum(memory, over), cost), (_sum(memory, under), _cost(costs, pairs, under))
    best_cost = below[1]
    for _ in range(100):
        if above[0] <= below[0]:
            break
        slope = (below[1] - above[1]) / (above[0] - below[0])
        if slope <= 0:
            break
        solved = Elimination([c + slope * m for c, m in zip(costs, memory)], pairs)
        found = solved.best()
        point = (_sum(memory, found), _cost(costs, pairs, found))
        if solved.value - slope * cap > lower:
            price, lower = slope, solved.value - slope * cap
        if point[0] <= cap and point[1] < best_cost:
            best, best_cost = found, point[1]
        if solved.value >= above[1] + slope * above[0] - 1e-9 * max(1.0, abs(solved.value)):
            break
        if point[0] > cap:
            above = point
        else:
            below = point
    return best, price, lower


def _sum(tables: Sequence[Table], chosen: Sequence[int]) -> float:
    return float(sum(table[state] for table, state in zip(tables, chosen)))


def _cost(costs: Sequence[Table], pairs: Pairs, chosen: Sequence[int]) -> float:
    return _sum(costs, chosen) + float(sum(table[chosen[u], chosen[v]] for (u, v), table in pairs.items()))


@dataclass
class _Labels:
    """Partial choices as rows: the states of all variables (-1 for open), cost and memory; `scope` still matters."""

    scope: tuple[int, ...]
    states: NDArray[np.int16]
    cost: Table
    memory: Table

    def key(self, scope: Sequence[int], sizes: Sequence[int]) -> Ints:
        number = np.zeros(len(self.cost), dtype=np.int64)
        for v in scope:
            number = number * sizes[v] + self.states[:, v]
        return number


class _Fronts:
    """Elimination with a Pareto front for each border."""

    def __init__(
        self, costs: Sequence[Table], memory: Sequence[Table], pairs: Pairs, cap: float, target: float, price: float
    ) -> None:
        self.sizes = [len(table) for table in costs]
        self.cap, self.target, self.price = cap, target, price
        self.least_memory = [float(table.min()) for table in memory]
        self.factors: list[_Labels] = []
        for v, (c, m) in enumerate(zip(costs, memory)):
            self.factors.append(self._labels((v,), c, m))
        for (u, v), table in pairs.items():
            self.factors.append(self._labels((u, v), table.ravel(), np.zeros(table.size)))

    def best(self, priced: Elimination, keep: Sequence[Ints]) -> list[int] | None:
        """The states of least cost that reach the target, or None if there are none.

        Follows the order of an elimination with priced memory, whose bounds on everything outside a border
        tell which partial choices can still end well.
        """
        for v in priced.order:
            mine = sorted((f for f in self.factors if v in f.scope), key=lambda f: len(f.cost))
            self.factors = [f for f in self.factors if v not in f.scope]
            joined = mine[0]
            for factor in mine[1:]:
                joined = self._front(self._join(joined, factor))
            border = priced.scopes[v]
            joined = _Labels(border, joined.states, joined.cost, joined.memory)
            if border and len(joined.cost):
                outside = priced.outside[v][np.ix_(*(keep[u] for u in border))]
                bound = joined.cost + self.price * joined.memory + outside[tuple(joined.states[:, u] for u in border)]
                joined = _rows(joined, np.flatnonzero(bound - self.price * self.cap <= self.target))
            self.factors.append(self._front(joined))
        whole = self.factors[0]
        for factor in self.factors[1:]:
            whole = self._front(self._join(whole, factor))
        if not len(whole.cost):
            return None
        return [int(state) for state in whole.states[np.lexsort((whole.memory, whole.cost))[0]]]

    def _labels(self, scope: tuple[int, ...], cost: Table, memory: Table) -> _Labels:
        states = np.full((len(cost), len(self.sizes)), -1, dtype=np.int16)
        for column, v in zip(np.unravel_index(np.arange(len(cost)), [self.sizes[v] for v in scope]), scope):
            states[:, v] = column
        return _Labels(scope, states, cost, memory)

    def _join(self, a: _Labels, b: _Labels) -> _Labels:
        shared = [v for v in a.scope if v in b.scope]
        left, right = a.key(shared, self.sizes), b.key(shared, self.sizes)
        order = np.argsort(right, kind="stable")
        first = np.searchsorted(right[order], left, side="left")
        many = np.searchsorted(right[order], left, side="right") - first
        most = MOST // len(self.sizes)
        if many.sum() > most:
            raise LayoutError(
                f"an exact plan under this cap would weigh {int(many.sum()):,} partial plans at once; "
                f"{most:,} is the limit here: configure some operators, or plan a smaller graph"
            )
        i = np.repeat(np.arange(len(left)), many)
        j = order[np.arange(len(i)) - np.repeat(np.cumsum(many) - many, many) + np.repeat(first, many)]
        cost, memory = a.cost[i] + b.cost[j], a.memory[i] + b.memory[j]
        good = cost <= self.target
        i, j = i[good], j[good]
        scope = tuple(dict.fromkeys(a.scope + b.scope))
        return _Labels(scope, np.maximum(a.states[i], b.states[j]), cost[good], memory[good])

    def _front(self, labels: _Labels) -> _Labels:
        """Without the rows that cannot fit under the cap, or that another row with the same border beats."""
        unset = (labels.states < 0) @ np.array(self.least_memory)
        fits = labels.memory + unset <= self.cap + 0.5
        key = labels.key(labels.scope, self.sizes)
        order = np.lexsort((labels.cost, labels.memory, key))
        order = order[fits[order]]
        if not len(order):
            return _rows(labels, order)
        # Within a border, by growing memory, a row stays if it is cheaper than all before it.
        cost, border = labels.cost[order], key[order]
        number = np.cumsum(np.append(False, border[1:] != border[:-1]))
        far = 2 * (np.abs(cost).max() + 1)
        falling = np.minimum.accumulate(cost - number * far)
        stays = np.append(True, (cost - number * far)[1:] < falling[:-1])
        return _rows(labels, order[stays])


def _rows(labels: _Labels, rows: Ints) -> _Labels:
    return _Labels(labels.scope, labels.states[rows], labels.cost[rows], labels.memory[rows])
