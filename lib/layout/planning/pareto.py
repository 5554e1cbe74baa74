"""Variable elimination that keeps Pareto fronts of cost and memory instead of minima.

Of two partial choices with the same values on their border, one that is worse in cost and in memory is dropped. So is
one that must end above the target, by the bound on everything outside its border: label-setting with dominance and
completion bounds, as in Desrochers and Soumis 1988. It is exact, but fronts can grow, up to MAX_PARTIAL_PLANS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lib.layout.errors import LayoutError
from lib.layout.layouts.device_matrix import Ints

from .elimination import Elimination, Pairs, Table

MAX_PARTIAL_PLANS = 4_000_000
"""Maximum number of partial choices that are compared at the same time."""


@dataclass(frozen=True, eq=False)
class _Labels:
    """Partial choices as rows: a column of `states` for each variable on the border, cost and memory.

    `least` is the minimum memory that the variables counted so far can have; `origin` has the earlier labels and, for
    each row here, its row there.
    """

    border: tuple[int, ...]
    states: NDArray[np.int16]
    cost: Table
    memory: Table
    least: float
    origin: tuple[tuple[_Labels, Ints], ...] = ()

    def rows(self, chosen: Ints) -> _Labels:
        origin = tuple((labels, row[chosen]) for labels, row in self.origin)
        return _Labels(
            self.border, self.states[chosen], self.cost[chosen], self.memory[chosen], self.least, origin
        )  # fmt: skip

    def key(self, border: Sequence[int], sizes: Sequence[int]) -> Ints:
        number = np.zeros(len(self.cost), dtype=np.int64)
        for v in border:
            number = number * sizes[v] + self.states[:, self.border.index(v)]
        return number

    def chosen(self, row: int, variables: int) -> list[int]:
        """The value of every variable in one row."""
        values = [0] * variables
        stack: list[tuple[_Labels, int]] = [(self, row)]
        while stack:
            labels, row = stack.pop()
            for v, state in zip(labels.border, labels.states[row].tolist()):
                values[v] = state
            stack += [(before, int(rows[row])) for before, rows in labels.origin]
        return values


class ParetoElimination:
    """The choices among the values in `keep` that cost at most `target` and take at most `cap` of memory."""

    _number = 0

    def __init__(
        self,
        costs: Sequence[Table],
        memory: Sequence[Table],
        pairs: Pairs,
        keep: Sequence[Ints],
        cap: float,
        target: float,
        price: float,
    ) -> None:
        self.keep, self.cap, self.target, self.price = keep, cap, target, price
        self.sizes = [len(states) for states in keep]
        self.least = float(sum(table[states].min() for table, states in zip(memory, keep)))
        self.factors: dict[int, _Labels] = {}
        self.factors_of: list[dict[int, None]] = [{} for _ in keep]
        """By variable: the numbers of the factors that it is in."""
        for v, states in enumerate(keep):
            self._add(self._labels((v,), costs[v][states], memory[v][states]))
        for names, table in pairs.items():
            narrowed = table[np.ix_(*(keep[v] for v in names))]
            labels = self._labels(names, narrowed, np.zeros_like(narrowed))
            self._add(labels.rows(np.flatnonzero(labels.cost <= target)))

    def _add(self, factor: _Labels) -> None:
        number = self._number = self._number + 1
        self.factors[number] = factor
        for v in factor.border:
            self.factors_of[v][number] = None

    def _take(self, v: int) -> list[_Labels]:
        """Removes the factors that a variable is in."""
        taken = list(self.factors_of[v])
        for number in taken:
            for u in self.factors[number].border:
                del self.factors_of[u][number]
        return [self.factors.pop(number) for number in taken]

    def best(self, priced: Elimination) -> list[int] | None:
        """The values of minimum cost, or None if no choice reaches the target.

        Follows the order of an elimination of the priced tables; its bounds on everything outside a border rule out
        partial choices that must end above the target.
        """
        for v in priced.order:
            joined = self._joined(self._take(v))
            border = priced.scopes[v]
            if border:
                outside = priced.outside[v][np.ix_(*(self.keep[u] for u in border))]
                places = tuple(joined.states[:, joined.border.index(u)] for u in border)
                bound = joined.cost + self.price * (joined.memory - self.cap) + outside[places]
                joined = joined.rows(np.flatnonzero(bound <= self.target))
            self._add(self._front(joined, border))
        whole = self._joined(list(self.factors.values()))
        if not len(whole.cost):
            return None
        row = int(np.lexsort((whole.memory, whole.cost))[0])
        return [int(self.keep[v][state]) for v, state in enumerate(whole.chosen(row, len(self.sizes)))]

    def _joined(self, factors: Sequence[_Labels]) -> _Labels:
        first, *others = sorted(factors, key=lambda factor: len(factor.cost))
        for other in others:
            first = self._join(first, other)
            first = self._front(first, first.border)
        return first

    def _labels(self, border: tuple[int, ...], cost: Table, memory: Table) -> _Labels:
        places = np.unravel_index(np.arange(cost.size), cost.shape)
        states = np.stack(places, axis=1).astype(np.int16)
        return _Labels(border, states, cost.ravel(), memory.ravel(), float(memory.min()))

    def _join(self, a: _Labels, b: _Labels) -> _Labels:
        shared = [v for v in a.border if v in b.border]
        left, right = a.key(shared, self.sizes), b.key(shared, self.sizes)
        order = np.argsort(right, kind="stable")
        first = np.searchsorted(right[order], left, side="left")
        many = np.searchsorted(right[order], left, side="right") - first
        if many.sum() > MAX_PARTIAL_PLANS:
            raise LayoutError(
                f"an exact plan under this cap would have to compare {int(many.sum()):,} partial plans at once; "
                f"{MAX_PARTIAL_PLANS:,} is the limit: configure some operators, or plan a smaller graph"
            )
        i = np.repeat(np.arange(len(left)), many)
        j = order[np.arange(len(i)) - np.repeat(np.cumsum(many) - many, many) + np.repeat(first, many)]
        cost = a.cost[i] + b.cost[j]
        good = cost <= self.target
        i, j = i[good], j[good]
        new = [column for column, v in enumerate(b.border) if v not in a.border]
        return _Labels(
            a.border + tuple(b.border[column] for column in new),
            np.concatenate([a.states[i], b.states[j][:, new]], axis=1),
            cost[good],
            a.memory[i] + b.memory[j],
            a.least + b.least,
            ((a, i), (b, j)),
        )

    def _front(self, labels: _Labels, border: tuple[int, ...]) -> _Labels:
        """With this border, without rows that cannot fit under the cap or that another row beats."""
        fits = labels.memory + (self.least - labels.least) <= self.cap + 0.5
        key = labels.key(border, self.sizes)
        order = np.lexsort((labels.cost, labels.memory, key))
        order = order[fits[order]]
        if len(order):
            # Within a border, in order of memory, a row stays if it is cheaper than all before it.
            cost, place = labels.cost[order], key[order]
            number = np.cumsum(np.append(False, place[1:] != place[:-1]))
            falling = cost - number * 2 * (np.abs(cost).max() + 1)
            order = order[np.append(True, falling[1:] < np.minimum.accumulate(falling)[:-1])]
        kept = labels.rows(order)
        if border == labels.border:
            return kept
        columns = [labels.border.index(v) for v in border]
        return _Labels(
            border, kept.states[:, columns], kept.cost, kept.memory, kept.least, ((kept, np.arange(len(order))),)
        )  # fmt: skip
