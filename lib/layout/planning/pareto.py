"""Variable elimination that keeps Pareto fronts of cost and loads instead of minima.

A load is what a choice holds at some moment, and there is a cap for each moment. Of two partial choices with the same
values on their border, one that is worse in cost and in every load is dropped. So is one that must end above the target
or a cap, by bounds on everything outside its border: label-setting with dominance and completion bounds, as in
Desrochers and Soumis 1988. It is exact, but fronts can grow, up to MAX_PARTIAL_PLANS.

Few moments matter. A load counts as no less than what fits whatever happens outside; one that is then the same in all
partial choices is dropped with its moment. Of moments that the outside cannot tell apart, the fullest is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib.layout.layouts.device_matrix import Ints

from .elimination import Elimination, Pairs, Table
from .loads import Load
from .partial_plans import PartialPlans, TooManyPlans, stacked, undominated

MAX_PARTIAL_PLANS = 4_000_000
"""Maximum number of partial choices that are compared at the same time."""
MAX_PAIRS = 40_000_000
"""Maximum number of pairs of partial choices that are tried for that."""
MAX_PAIRS_AT_ONCE = 1 << 19
MAX_LOADS = 40_000_000
"""Maximum number of loads that these have together."""
HALF = 0.5
"""Loads are whole numbers; so much more than a cap is not an error of rounding."""
NONE = np.zeros(0, dtype=np.int64)


class ParetoElimination:
    """The choices among the values in `keep` that cost at most `target`, with loads of at most `caps`.

    `priced` is an elimination of costs and priced loads, all of these or some, after `through`: it has the order to
    follow, and bounds. `offset` is what the caps are worth at these prices. Tables of `loads` are over the values in
    `keep`, all others over all values.
    """

    def __init__(
        self,
        costs: Sequence[Table],
        pairs: Pairs,
        keep: Sequence[Ints],
        loads: Sequence[Load],
        caps: Table,
        target: float,
        priced: Elimination,
        offset: float,
    ) -> None:
        self.keep, self.caps, self.target, self.priced = keep, caps.astype(np.float64), target, priced
        self.sizes = [len(states) for states in keep]
        self.offset = offset
        self.factors: dict[int, PartialPlans] = {}
        self.factors_of: list[dict[int, None]] = [{} for _ in keep]
        """By variable: the numbers of the factors that it is in."""
        self.least, self.most = np.zeros(len(caps)), np.zeros(len(caps))
        """By moment, the sums of the least and the largest loads of all factors."""
        self.content = np.zeros(len(caps), dtype=np.uint64)
        """By moment, the sum of fingerprints of the loads of all factors; equal only if all are equal."""
        self._sums: dict[int, tuple[NDArray[Any], ...]] = {}
        """What each factor has added to these three."""
        self._number = 0
        for names, (cost, mine) in self._tables(costs, pairs, loads).items():
            self._add(self._partial_plans(names, cost, mine))
        self.matters = self.most > self.caps + HALF
        """Moments at which some choices may hold too much."""

    def best(self) -> list[int] | None:
        """The values of minimum cost, or None if no choice reaches the target within the caps."""
        for v in self.priced.order:
            joined = self._joined(list(self.factors_of[v]), v)
            self._add(self._front(joined, tuple(u for u in joined.border if u != v)))
            if not len(joined.cost):
                return None
        whole = self._joined(list(self.factors), None)
        if not len(whole.cost):
            return None
        row = int(np.lexsort((whole.excess, whole.cost))[0])
        return [int(self.keep[v][state]) for v, state in enumerate(whole.chosen(row, len(self.sizes)))]

    def _tables(
        self, costs: Sequence[Table], pairs: Pairs, loads: Sequence[Load]
    ) -> dict[tuple[int, ...], tuple[Table, list[Load]]]:
        """Costs and loads together, by the variables that they are about, in order."""
        found: dict[tuple[int, ...], tuple[Table, list[Load]]] = {}

        def at(names: tuple[int, ...]) -> tuple[Table, list[Load]]:
            shape = [self.sizes[v] for v in names]
            return found.setdefault(names, (np.zeros(shape), []))

        for names, table in [*(((v,), cost) for v, cost in enumerate(costs)), *pairs.items()]:
            order = sorted(range(len(names)), key=names.__getitem__)
            total, _ = at(tuple(sorted(names)))
            total += table[np.ix_(*(self.keep[v] for v in names))].transpose(order)
        for names, start, stop, table in loads:
            order = sorted(range(len(names)), key=names.__getitem__)
            at(tuple(sorted(names)))[1].append(Load(names, start, stop, table.transpose(order)))
        return found

    def _partial_plans(self, names: tuple[int, ...], cost: Table, loads: Iterable[Load]) -> PartialPlans:
        """All choices for these variables."""
        states = np.stack(np.unravel_index(np.arange(cost.size), cost.shape), axis=1).astype(np.int16)
        touched = np.zeros(len(self.caps), dtype=bool)
        for each in loads:
            touched[each.start : each.stop] = True
        moments = np.flatnonzero(touched)
        held = np.zeros((len(moments), cost.size))
        for _, start, stop, table in loads:
            first, last = np.searchsorted(moments, (start, stop))
            held[first:last] += table.ravel()
        partial = PartialPlans(names, states, cost.ravel(), np.zeros(cost.size), moments, held)
        return partial.rows(np.flatnonzero(partial.cost <= self.target))

    def _add(self, factor: PartialPlans) -> None:
        number = self._number = self._number + 1
        self.factors[number] = factor
        for v in factor.border:
            self.factors_of[v][number] = None
        held = factor.loads if len(factor.cost) else np.zeros((len(factor.moments), 1))
        prints = [blake2b(row.tobytes(), digest_size=8, salt=number.to_bytes(8, "big")).digest() for row in held]
        sums = (held.min(axis=1), held.max(axis=1), np.frombuffer(b"".join(prints), dtype=np.uint64))
        self._sums[number] = sums
        totals: tuple[NDArray[Any], ...] = (self.least, self.most, self.content)
        for total, mine in zip(totals, sums):
            total[factor.moments] += mine

    def _take(self, number: int) -> PartialPlans:
        factor = self.factors.pop(number)
        for v in factor.border:
            del self.factors_of[v][number]
        totals: tuple[NDArray[Any], ...] = (self.least, self.most, self.content)
        for total, mine in zip(totals, self._sums.pop(number)):
            total[factor.moments] -= mine
        return factor

    def _joined(self, numbers: Sequence[int], v: int | None) -> PartialPlans:
        """All factors of these numbers as one; before variable v is eliminated, only what may reach the target."""
        first, *others = sorted(numbers, key=lambda number: len(self.factors[number].cost))
        joined = self._relevant(self._take(first))
        while others:
            others.sort(key=lambda number: self._growth(joined, self.factors[number]))
            other = self._relevant(self._take(others.pop(0)))
            joined = self._join(joined, other, None if others else v)
            joined = self._front(joined, joined.border)
        return self._promising(joined, v) if len(numbers) == 1 and v is not None else joined

    def _promising(self, partial: PartialPlans, v: int) -> PartialPlans:
        """With the excess of variable v, and without rows that must end above the target.

        A whole choice costs the least of all choices and, for each variable, what its value costs more than the best
        one for the values of its later neighbors. In a row, all of this is known for the variables that are eliminated.
        """
        priced = self.priced
        at = {u: self.keep[u][partial.states[:, partial.border.index(u)]] for u in (*priced.scopes[v], v)}
        border = tuple(at[u] for u in priced.scopes[v])
        mine = sum(table[tuple(at[u] for u in names)] for names, table in priced.factors[v])
        least = priced.least[v][border]
        excess = partial.excess + mine - least
        whole = least + priced.outside[v][border] if border else priced.value
        kept = np.flatnonzero(excess + whole - self.offset <= self.target)
        return replace(partial, excess=excess).rows(kept)

    def _growth(self, a: PartialPlans, b: PartialPlans) -> float:
        """How many rows of b a row of a meets, about."""
        return len(b.cost) / prod(self.sizes[v] for v in b.border if v in a.border)

    def _join(self, a: PartialPlans, b: PartialPlans, v: int | None) -> PartialPlans:
        """The rows of a with those of b that have the same values of shared variables, where both together fit."""
        shared = [v for v in a.border if v in b.border]
        left, right = a.key(shared, self.sizes), b.key(shared, self.sizes)
        order = np.argsort(right, kind="stable")
        first = np.searchsorted(right[order], left, side="left")
        many = np.searchsorted(right[order], left, side="right") - first
        until = np.cumsum(many)
        if many.sum() > MAX_PAIRS:
            raise TooManyPlans(self._too_many(int(many.sum())))
        found: list[PartialPlans] = []
        start = rows = 0
        while start < len(left):
            stop = max(start + 1, int(np.searchsorted(until, until[start] + MAX_PAIRS_AT_ONCE)))
            mine = many[start:stop]
            i = np.repeat(np.arange(start, stop), mine)
            j = order[np.arange(len(i)) - np.repeat(np.cumsum(mine) - mine, mine) + np.repeat(first[start:stop], mine)]
            found.append(self._pairs(a, b, i, j, v))
            rows += len(found[-1].cost)
            if rows > MAX_PARTIAL_PLANS or rows * len(found[-1].moments) > MAX_LOADS:
                raise TooManyPlans(self._too_many(rows))
            start = stop
        return stacked(found) if found else self._pairs(a, b, order[:0], order[:0], v)

    def _pairs(self, a: PartialPlans, b: PartialPlans, i: Ints, j: Ints, v: int | None) -> PartialPlans:
        """Rows i of a with rows j of b, where both together fit."""
        good = a.cost[i] + b.cost[j] <= self.target
        i, j = i[good], j[good]
        new = [column for column, u in enumerate(b.border) if u not in a.border]
        border = a.border + tuple(b.border[column] for column in new)
        states = np.concatenate([a.states[i], b.states[j][:, new]], axis=1)
        cost, excess = a.cost[i] + b.cost[j], a.excess[i] + b.excess[j]
        joined = PartialPlans(border, states, cost, excess, NONE, np.zeros((0, len(cost))), ((a, i), (b, j)))
        if v is not None:
            joined = self._promising(joined, v)
            (_, i), (_, j) = joined.origin
        moments = np.union1d(a.moments, b.moments)
        loads = np.zeros((len(moments), len(i)))
        loads[np.searchsorted(moments, a.moments)] = a.loads[:, i]
        loads[np.searchsorted(moments, b.moments)] += b.loads[:, j]
        fits = (loads <= (self.caps[moments] - self.least[moments] + HALF)[:, None]).all(axis=0)
        return replace(joined, moments=moments, loads=loads).rows(np.flatnonzero(fits))

    def _too_many(self, rows: int) -> str:
        return (
            f"an exact plan under this cap would have to compare {rows:,} partial plans at once; "
            f"{MAX_PARTIAL_PLANS:,} is the limit: configure some operators, or plan a smaller graph"
        )

    def _relevant(self, partial: PartialPlans) -> PartialPlans:
        """With the moments that matter."""
        mine = self.matters[partial.moments]
        return partial if mine.all() else replace(partial, moments=partial.moments[mine], loads=partial.loads[mine])

    def _front(self, partial: PartialPlans, border: tuple[int, ...]) -> PartialPlans:
        """With this border, without rows that cannot fit under the caps or that another row beats."""
        partial = self._fewer_moments(partial)
        at = partial.moments
        clipped = np.maximum(partial.loads, (self.caps[at] - self.most[at])[:, None])
        clipped = clipped[clipped.min(axis=1, initial=np.inf) < clipped.max(axis=1, initial=-np.inf)]
        kept = partial.rows(undominated(partial.key(border, self.sizes), partial.cost, clipped))
        if border == partial.border:
            return kept
        columns = [partial.border.index(v) for v in border]
        origin = ((kept, np.arange(len(kept.cost))),)
        return replace(kept, border=border, states=kept.states[:, columns], origin=origin)

    def _fewer_moments(self, partial: PartialPlans) -> PartialPlans:
        """Only rows that may fit, and only moments that tell them apart."""
        at = partial.moments
        fits = (partial.loads <= (self.caps[at] - self.least[at] + HALF)[:, None]).all(axis=0)
        partial = partial if fits.all() else partial.rows(np.flatnonzero(fits))
        high = partial.loads.max(axis=1, initial=-np.inf)
        self.matters[at] &= high + self.most[at] > self.caps[at] + HALF
        partial = self._relevant(partial)
        at, loads = partial.moments, partial.loads
        constant = loads.min(axis=1, initial=np.inf) == loads.max(axis=1, initial=-np.inf)
        self.caps[at[constant]] -= loads[constant, :1].ravel()
        at, loads = at[~constant], loads[~constant]
        _, first, alike = np.unique(self.content[at], return_index=True, return_inverse=True)
        if len(first) < len(at):
            over = loads - self.caps[at][:, None]
            fullest = np.full((len(first), loads.shape[1]), -np.inf)
            np.maximum.at(fullest, alike, over)
            self.matters[np.delete(at, first)] = False
            at = at[first]
            loads = fullest + self.caps[at][:, None]
        order = np.argsort(at)
        return replace(partial, moments=at[order], loads=loads[order])
