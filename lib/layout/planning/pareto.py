"""Variable elimination that keeps Pareto fronts of cost and memory instead of minima.

Of two partial choices with the same values on their border, one that is worse in cost and in memory is dropped. So is
one that must end above the target or the cap, by bounds on everything outside its border: label-setting with dominance
and completion bounds, as in Desrochers and Soumis 1988. It is exact, but fronts can grow, up to MAX_PARTIAL_PLANS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from lib.layout.layouts.device_matrix import Ints

from .elimination import Elimination, Pairs, Table, TooEntangledError

MAX_PARTIAL_PLANS = 4_000_000
"""Maximum number of partial choices that are compared at the same time."""
MAX_PAIRS = 40_000_000
"""Maximum number of pairs of partial choices that are tried for that."""
MAX_PAIRS_AT_ONCE = 1 << 19
HALF = 0.5
"""Memory is a whole number; so much more than a cap is not an error of rounding."""


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
            raise TooEntangledError(
                f"an exact plan would have to consider {len(border)} tensors and operators together"
            )
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
    # Each key's rows are shifted below those of the keys before, so that one running minimum serves all keys.
    shifted = held - number * 2 * (np.abs(held).max(initial=0) + 1)
    least_before = np.minimum.accumulate(shifted)[:-1]
    is_less = np.append(True, shifted[1:] < least_before)[: len(order)]
    return np.asarray(order[is_less])


class ParetoElimination:
    """The choices among the values in `keep` that cost at most `target` and hold at most `cap`.

    `priced` is an elimination of costs and priced memory, after `through`: it has the order to follow, and bounds.
    `offset` is what the cap is worth at this price.
    """

    def __init__(
        self,
        costs: Sequence[Table],
        memory: Sequence[Table],
        pairs: Pairs,
        keep: Sequence[Ints],
        cap: float,
        target: float,
        priced: Elimination,
        offset: float,
    ) -> None:
        self.keep, self.cap, self.target, self.priced, self.offset = keep, cap, target, priced, offset
        self.sizes = [len(states) for states in keep]
        self.factors: dict[int, PartialPlans] = {}
        self.factors_of: list[dict[int, None]] = [{} for _ in keep]
        """By variable: the numbers of the factors that it is in."""
        self.least = self.most = 0.0
        """The sums of the least and the largest memory of all factors."""
        self._number = 0
        for v, states in enumerate(keep):
            self._add(self._partial_plans((v,), costs[v][states], memory[v][states]))
        for names, table in pairs.items():
            cost = table[np.ix_(*(keep[v] for v in names))]
            self._add(self._partial_plans(names, cost, np.zeros(cost.shape)))

    def best(self) -> list[int] | None:
        """The values of minimum cost, or None if no choice reaches the target within the cap."""
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

    def _partial_plans(self, names: tuple[int, ...], cost: Table, held: Table) -> PartialPlans:
        states = np.stack(np.unravel_index(np.arange(cost.size), cost.shape), axis=1).astype(np.int16)
        partial = PartialPlans(names, states, cost.ravel(), held.ravel(), np.zeros(cost.size))
        return partial.rows(np.flatnonzero(partial.cost <= self.target))

    def _add(self, factor: PartialPlans) -> None:
        number = self._number = self._number + 1
        self.factors[number] = factor
        for v in factor.border:
            self.factors_of[v][number] = None
        self.least += factor.held.min(initial=np.inf) if len(factor.held) else 0.0
        self.most += factor.held.max(initial=0)

    def _take(self, number: int) -> PartialPlans:
        factor = self.factors.pop(number)
        for v in factor.border:
            del self.factors_of[v][number]
        self.least -= factor.held.min(initial=np.inf) if len(factor.held) else 0.0
        self.most -= factor.held.max(initial=0)
        return factor

    def _joined(self, numbers: Sequence[int], v: int | None) -> PartialPlans:
        """All factors of these numbers as one; before variable v is eliminated, only what may reach the target."""
        first, *others = sorted(numbers, key=lambda number: len(self.factors[number].cost))
        joined = self._take(first)
        while others:
            others.sort(key=lambda number: self._growth(joined, self.factors[number]))
            other = self._take(others.pop(0))
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
        """The rows of a with the rows of b that have the same values of shared variables, where both together fit."""
        shared = [v for v in a.border if v in b.border]
        left, right = a.key(shared, self.sizes), b.key(shared, self.sizes)
        order = np.argsort(right, kind="stable")
        first = np.searchsorted(right[order], left, side="left")
        many = np.searchsorted(right[order], left, side="right") - first
        until = np.cumsum(many)
        if many.sum() > MAX_PAIRS:
            raise TooEntangledError(self._too_many(int(many.sum())))
        found = [(order[:0], order[:0])]
        start = rows = 0
        while start < len(left):
            stop = max(start + 1, int(np.searchsorted(until, until[start] + MAX_PAIRS_AT_ONCE)))
            mine = many[start:stop]
            i = np.repeat(np.arange(start, stop), mine)
            j = order[np.arange(len(i)) - np.repeat(np.cumsum(mine) - mine, mine) + np.repeat(first[start:stop], mine)]
            good = a.cost[i] + b.cost[j] <= self.target
            good &= a.held[i] + b.held[j] <= self.cap - self.least + HALF
            found.append((i[good], j[good]))
            rows += int(good.sum())
            if rows > MAX_PARTIAL_PLANS:
                raise TooEntangledError(self._too_many(rows))
            start = stop
        i, j = map(np.concatenate, zip(*found))
        new = [column for column, u in enumerate(b.border) if u not in a.border]
        joined = PartialPlans(
            a.border + tuple(b.border[column] for column in new),
            np.concatenate([a.states[i], b.states[j][:, new]], axis=1),
            a.cost[i] + b.cost[j],
            a.held[i] + b.held[j],
            a.excess[i] + b.excess[j],
            ((a, i), (b, j)),
        )
        return joined if v is None else self._promising(joined, v)

    def _too_many(self, rows: int) -> str:
        return (
            f"an exact plan under this cap would have to compare {rows:,} partial plans at once; "
            f"{MAX_PARTIAL_PLANS:,} is the limit: configure some operators, or plan a smaller graph"
        )

    def _front(self, partial: PartialPlans, border: tuple[int, ...]) -> PartialPlans:
        """With this border, without rows that cannot fit under the cap or that another row beats.

        Memory counts as no less than what fits whatever happens outside.
        """
        partial = partial.rows(np.flatnonzero(partial.held <= self.cap - self.least + HALF))
        held = np.maximum(partial.held, self.cap - self.most)
        kept = partial.rows(undominated(partial.key(border, self.sizes), partial.cost, held))
        return kept if border == partial.border else kept.on(border)
