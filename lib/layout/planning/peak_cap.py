"""The cheapest plan whose peak is at most a cap: prices on moments give a lower bound, then a search above it.

Every moment has a price (Lagrange multipliers, found by subgradient steps: Held, Wolfe and Crowder 1974). An
elimination with priced loads gives a lower bound of every choice. As in `memory_cap`, choices that cost at most a
little more than that bound are searched first, all of them, by fronts of cost and loads; then more, until there is a
plan. What moves and copies hold beyond `Moments.loads` is counted where a plan turned out to hold too much. A search
that would take too long ends; then `BestPlan.at_least` is what is proven.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

import numpy as np

from lib.layout.errors import LayoutError

from .elimination import FORBIDDEN, Elimination, Table, elimination_order, table_entries
from .loads import narrowed, total
from .memory_cap import cost_step, total_cost
from .moments import Moments
from .pareto import ParetoElimination
from .partial_plans import TooManyPlans
from .placement_problem import PlacementProblem
from .plan import GraphPlan

MAX_PRICE_STEPS = 100
"""Subgradient steps, at most."""
MAX_WEIGHT_STEPS = 40
"""Steps of the weights in the search for the least peak."""
MAX_PRICE_ENTRIES = 300_000_000
"""Entries of tables that all of these steps together may have."""
MAX_RETREATS = 4
"""How often the range of costs is made narrower where there are too many plans to compare."""
PATIENCE = 6
"""Subgradient steps without a better bound, after which they become shorter."""
MAX_CASES = 1_000_000
"""Values of variables that are combined to count the copies of one tensor."""


class BestPlan(NamedTuple):
    """The best plan, its cost, and the least that any plan within the caps can cost; equal if it is proven to be the
    cheapest."""

    plan: GraphPlan
    cost: float
    at_least: float


@dataclass
class _Best:
    """The cheapest plan within the caps so far, and the plan of the least peak."""

    plan: GraphPlan | None = None
    cost: float = np.inf
    least: GraphPlan | None = None
    peak: float = np.inf
    least_cost: float = np.inf


class PeakSearch:
    """Plans of a problem with a peak of at most `peak` bytes and, if given, memory of at most `memory_cap`."""

    def __init__(self, problem: PlacementProblem, peak: int, memory_cap: int | None) -> None:
        self.problem, self.peak, self.memory_cap = problem, peak, memory_cap
        self.moments = Moments(problem, memory_cap)
        self.caps = np.full(self.moments.count, float(peak))
        if memory_cap is not None:
            self.caps[-1] = memory_cap
        self.step = cost_step([*problem.costs, *problem.pairs.values()])
        sizes = list(map(len, problem.costs))
        scopes = [*problem.pairs, *(load.scope for load in self.moments.loads)]
        self.entries = sum(table_entries(sizes, v, scope) for v, scope in elimination_order(sizes, scopes))
        """Entries of the tables of one elimination."""
        self.best = _Best()
        self.counted: dict[int, list[tuple[int, int]]] = {}
        """By number of `Moments.copies`: the parts of `rest` that are counted."""

    def cheapest(self) -> BestPlan:
        """The cheapest plan.

        Raises:
            LayoutError: no plan meets the caps, or none was found.
        """
        free = Elimination(self.problem.costs, self.problem.pairs)
        if self._judge(free.best()):
            return self._found(free.value)
        prices, lower = self._set_prices(free.value)
        possible = True
        if self.best.plan is None:
            with suppress(TooManyPlans):
                possible = self._any(self._weigh()[1])
            self.counted.clear()  # cheap plans may need less
        at_least = self._search(prices, lower) if possible else np.inf
        if self.best.plan is None:
            search = PeakSearch(self.problem, self.peak, None)
            search.best = replace(self.best)
            bound, proven = search.least_peak()
            least, memory = search.best.least, self.memory_cap
            if least is None or least.peak > self.peak or (memory is not None and least.memory > memory):
                raise LayoutError(self._refusal(at_least == np.inf, least, bound, proven))
            self.best.plan, self.best.cost = least, search.best.least_cost  # no cheaper one was found
        return self._found(at_least)

    def _found(self, at_least: float) -> BestPlan:
        assert self.best.plan is not None
        return BestPlan(self.best.plan, self.best.cost, min(at_least, self.best.cost))

    def _rounded(self, lower: float) -> float:
        """The least cost that is not below a bound: costs are multiples of their greatest common divisor."""
        return float(np.ceil(lower / self.step - 1e-6) * self.step)

    def _judge(self, chosen: list[int]) -> bool:
        """Whether the plan of a complete choice is within the caps; the best are kept."""
        if self.problem.forbids(chosen):
            return False
        held = self.moments.total(chosen)
        peak = float(held[: self.moments.operators].max())
        cost = total_cost(self.problem.costs, self.problem.pairs, chosen)
        if peak < self.best.peak:
            self.best.least, self.best.peak, self.best.least_cost = self.problem.plan(chosen), peak, cost
        if (held > self.caps).any():
            return False
        if cost < self.best.cost:
            self.best.plan, self.best.cost = self.problem.plan(chosen), cost
        return True

    def _search(self, prices: Table, lower: float) -> float:
        """Searches for the cheapest plan. Returns what no plan within the caps costs less than; infinity if there is
        none."""
        priced = self._priced(prices)
        through = priced.through()
        tables = (*self.problem.costs, *self.problem.pairs.values())
        every = sum(float(table[table < FORBIDDEN].max(initial=0)) for table in tables)
        lower = self._rounded(lower)
        gap = self._rounded(max(self.step, (min(every, self.best.cost) - lower) / 256))
        growth, retreats = 2.0, MAX_RETREATS
        while True:
            ceiling = min(every, self.best.cost - self.step)
            if lower > ceiling:
                return self.best.cost
            target = min(lower + gap, ceiling)
            try:
                if self._within(priced, through, prices, target + 1e-6 * self.step) is not None:
                    return self.best.cost
            except TooManyPlans:
                if not retreats or target == lower or self.best.plan is None:
                    return lower
                gap, growth, retreats = self._rounded((target - lower) / 4), 1.0, retreats - 1
            else:
                lower, gap = target + self.step, growth * gap

    def _within(
        self, priced: Elimination, through: list[Table], prices: Table, target: float, by_cost: bool = True
    ) -> list[int] | None:
        """The values of the cheapest plan within the caps, if there is one that costs at most `target`.

        Raises:
            TooManyPlans: there would be too many to compare.
        """
        costs, pairs = self._costs(by_cost)
        offset = float(prices @ self.caps)
        keep = [np.flatnonzero(table - offset <= target) for table in through]
        while all(map(len, keep)):
            loads = narrowed(self.moments.loads, keep)
            for i, part in ((i, part) for i, parts in self.counted.items() for part in parts):
                cases = prod(len(keep[v]) for v in self.moments.scope(i, part))
                if cases > MAX_CASES:
                    raise TooManyPlans(f"the copies of one tensor have {cases:,} cases")
                loads += self.moments.rest(i, part, keep)
            found = ParetoElimination(costs, pairs, keep, loads, self.caps, target, priced, offset).best()
            if found is None or self._judge(found):
                return found
            self._count(found)
        return None

    def _count(self, chosen: list[int]) -> None:
        """Counts from now on more of the copies with which these values hold too much."""
        values = [np.array([value]) for value in chosen]
        over = self.moments.total(chosen) > self.caps

        def matters(i: int, part: tuple[int, int]) -> bool:
            rest = total(self.moments.rest(i, part, values), [0] * len(chosen), self.moments.count)
            return bool((rest[over] > 0).any())

        for i in range(len(self.moments.copies)):
            *pairs, whole = self.moments.parts(i)
            before = self.counted.get(i, [])
            if whole in before or not matters(i, whole):
                continue
            more = [part for part in pairs if part not in before and matters(i, part)]
            self.counted[i] = [*before, *more] if more else [whole]

    def _costs(self, by_cost: bool) -> tuple[list[Table], dict[tuple[int, ...], Table]]:
        """The tables of costs; or zeros, for values that go together."""
        costs, pairs = list(self.problem.costs), dict(self.problem.pairs)
        if by_cost:
            return costs, pairs
        return [np.where(table >= FORBIDDEN, FORBIDDEN, 0.0) for table in costs], {
            names: np.where(table >= FORBIDDEN, FORBIDDEN, 0.0) for names, table in pairs.items()
        }

    def _priced(self, prices: Table, by_cost: bool = True) -> Elimination:
        """Costs, or zeros, and priced loads."""
        costs, pairs = self._costs(by_cost)
        until = np.append(0.0, np.cumsum(prices))
        for scope, start, stop, table in self.moments.loads:
            price = until[stop] - until[start]
            if price and len(scope) == 1:
                costs[scope[0]] = costs[scope[0]] + price * table
            elif price:
                pairs[scope] = pairs[scope] + price * table if scope in pairs else price * table
        return Elimination(costs, pairs)

    def _set_prices(self, lower: float) -> tuple[Table, float]:
        """Prices with a good lower bound, and that bound."""
        best_prices = prices = np.zeros(self.moments.count)
        best, pace, since = lower, 1.0, 0
        for _ in range(self.steps(MAX_PRICE_STEPS)):
            solved = self._priced(prices)
            bound = solved.value - float(prices @ self.caps)
            chosen = solved.best()
            self._judge(chosen)
            since += 1
            if bound > best:
                best, best_prices, since = bound, prices, 0
            if bound >= FORBIDDEN / 2 or self._rounded(best) >= self.best.cost:
                break
            if since == PATIENCE:
                prices, pace, since = best_prices, pace / 2, 0
                continue
            over = total(self.moments.loads, chosen, self.moments.count) - self.caps
            over = np.where((prices > 0) | (over > 0), over, 0.0)
            if not over.any():
                break
            goal = self.best.cost if np.isfinite(self.best.cost) else 2 * max(best, 1.0) + float(self.caps[0])
            move = pace * max(goal - bound, self.step) / float(over @ over)
            prices = np.maximum(0.0, prices + move * over)
        return best_prices, best

    def _least_of_moments(self) -> tuple[int, float]:
        """The moment at which all plans hold the most, and the least that any of them then holds."""
        moments = self.moments
        own = [m for m in range(moments.operators) if " moves " not in moments.names[m]]
        least = np.zeros(moments.operators)
        for moment in own if self.entries * len(own) < MAX_PRICE_ENTRIES else ():
            prices = np.zeros(moments.count)
            prices[moment] = 1
            least[moment] = self._priced(prices, by_cost=False).value
        return int(least.argmax()), float(least.max())

    def _refusal(self, impossible: bool, least: GraphPlan | None, bound: float, proven: bool) -> str:
        """No plan meets the caps, or none was found: why, and the least peak that was found or is possible."""
        if impossible and self.memory_cap is None:
            bound = max(bound, self.peak + 1)
        both = "" if self.memory_cap is None else f" and keeps at most {self.memory_cap:,}"
        what = f"no plan that holds at most {self.peak:,} bytes on each device at any time{both} "
        moment, held = self._least_of_moments()
        if held > self.peak:
            what += f"is possible: when {self.moments.names[moment]}, every plan holds {int(held):,} or more"
        else:
            what += "is possible" if impossible else "was found: the search ended early"
        if least is None:
            return f"{what}; leave more operators open"
        first = "the smallest possible peak" if proven else "the smallest peak that was found"
        below = "" if proven else f"; none is below {int(np.ceil(bound)):,}"
        return f"{what}; {first} is {least.peak:,}, when {least.peak_moment}{below}"

    def least_peak(self) -> tuple[float, bool]:
        """Searches for the plan of the least peak, whatever it costs. Returns a lower bound, and whether it is
        reached."""
        low, weights = self._weigh()
        size = self.problem.graph.itemsize
        low = float(np.ceil(low / size) * size)
        while low < self.best.peak:
            cap = (low + self.best.peak) // (2 * size) * size
            self.caps[: self.moments.operators] = cap
            try:
                if not self._any(weights):
                    low = cap + size
            except TooManyPlans:
                return low, False
        return low, True

    def _any(self, weights: Table) -> bool:
        """Whether there is a plan within the caps, whatever it costs.

        Raises:
            TooManyPlans: there would be too many to compare.
        """
        priced = self._priced(weights, by_cost=False)
        tolerance = 1e-6 * float(weights @ self.caps)
        return self._within(priced, priced.through(), weights, tolerance, by_cost=False) is not None

    def _weigh(self) -> tuple[float, Table]:
        """A lower bound of all peaks, and the weights of moments that prove it; judges plans of low peaks on the way.

        No plan's peak is below the least weighted average. Moments at which the last plan holds much gain weight
        (multiplicative weights: Freund and Schapire 1999).
        """
        weights = np.ones(self.moments.count)
        weights[self.moments.operators :] = 0
        bound, best = 0.0, weights / weights.sum()
        for _ in range(self.steps(MAX_WEIGHT_STEPS)):
            weights = weights / weights.sum()
            solved = self._priced(weights, by_cost=False)
            if solved.value > bound:
                bound, best = solved.value, weights
            chosen = solved.best()
            self._judge(chosen)
            held = total(self.moments.loads, chosen, self.moments.count) * (weights > 0)
            weights = weights * np.exp(3 * (held / held.max() - 1))
        return bound, best

    def steps(self, most: int) -> int:
        """How many eliminations are worth their time."""
        return max(4, min(most, MAX_PRICE_ENTRIES // max(1, self.entries)))
