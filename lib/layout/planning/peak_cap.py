"""The cheapest plan whose peak is at most a cap: prices on moments give a lower bound, then a search below it.

Every moment has a price (Lagrange multipliers, found by subgradient steps: Held, Wolfe and Crowder 1974). An
elimination with priced memory gives a lower bound for each partial choice, and a depth-first branch and bound (Land and
Doig 1960) follows it. A partial choice is left when it must cost too much, or hold too much at some moment. Complete
choices are judged by the peak of their plan. The search stops after MAX_NODES; then `Found.at_least` is what is proven.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lib.layout.errors import LayoutError

from .elimination import FORBIDDEN, Elimination, Table, elimination_order, table_entries
from .memory_cap import cost_step, total_cost
from .moments import Moments, total
from .placement_problem import PlacementProblem
from .plan import GraphPlan

MAX_NODES = 20_000
"""Partial choices that a search looks at."""
MAX_VARIABLES = 600
"""Variables that a search descends through; with more, only prices are searched."""
PRICE_STEPS = 60
"""Subgradient steps, at most."""
WEIGHT_STEPS = 40
"""Steps of the weights in the search for the least peak."""
PRICE_ENTRIES = 100_000_000
"""Entries of tables that all of these steps together may have."""


class Found(NamedTuple):
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


class PeakSearch:
    """Plans of a problem with a peak of at most `peak` bytes and, if given, memory of at most `memory_cap`."""

    def __init__(self, problem: PlacementProblem, peak: int, memory_cap: int | None) -> None:
        self.problem, self.peak, self.memory_cap = problem, peak, memory_cap
        self.moments = Moments(problem, memory_cap)
        self.caps = np.full(self.moments.count, float(peak))
        if memory_cap is not None:
            self.caps[-1] = memory_cap
        self.prices = np.zeros(self.moments.count)
        self.step = cost_step([*problem.costs, *problem.pairs.values()])
        order = elimination_order(self.moments.sizes, problem.pairs)
        self.entries = sum(table_entries(self.moments.sizes, v, scope) for v, scope in order)
        """Entries of the tables of one elimination."""
        self.best = _Best()
        self.nodes = 0

    def cheapest(self) -> Found:
        """The cheapest plan.

        Raises:
            LayoutError: no plan meets the caps, or none was found.
        """
        moment, least = self._least_of_moments()
        if least > self.peak:
            raise LayoutError(
                self._refusal(f"when {self.moments.name(moment)}, every plan holds {int(least):,} or more")
            )
        free = Elimination(self.problem.costs, self.problem.pairs)
        if self._judge(free.best()):
            return self._found(free.value)
        lower = self._set_prices(free.value)
        if self.best.plan is None:
            self._weigh()
        if self.best.cost > self._rounded(lower):
            priced = self._priced(self.prices)
            complete = _Descent(self, priced, by_cost=True).run()
            if complete and self.best.plan is not None:
                return self._found(self.best.cost)
            if self.best.plan is None:
                raise LayoutError(self._refusal("" if complete else "the search ended early"))
        return self._found(max(free.value, self._rounded(lower)))

    def _found(self, at_least: float) -> Found:
        assert self.best.plan is not None
        return Found(self.best.plan, self.best.cost, min(at_least, self.best.cost))

    def _rounded(self, lower: float) -> float:
        """The least cost that is not below a bound: costs are multiples of their greatest common divisor."""
        return float(np.ceil(lower / self.step - 1e-6) * self.step)

    def _judge(self, chosen: list[int]) -> bool:
        """Whether the plan of a complete choice is within the caps; the best are kept."""
        if self.problem.forbids(chosen):
            return False
        plan = self.problem.plan(chosen)
        held = plan.peak
        if held < self.best.peak:
            self.best.least, self.best.peak = plan, held
        if held > self.peak or (self.memory_cap is not None and plan.memory > self.memory_cap):
            return False
        cost = total_cost(self.problem.costs, self.problem.pairs, chosen)
        if cost < self.best.cost:
            self.best.plan, self.best.cost = plan, cost
        return True

    def _set_prices(self, lower: float) -> float:
        """Prices with a good lower bound, and that bound."""
        prices, best = self.prices, lower
        pace = 1.0
        for _ in range(self.steps(PRICE_STEPS)):
            solved = self._priced(prices)
            bound = solved.value - float(prices @ self.caps)
            chosen = solved.best()
            self._judge(chosen)
            if bound > best:
                best, self.prices = bound, prices
            else:
                pace *= 0.8
            if bound >= FORBIDDEN / 2 or self._rounded(best) >= self.best.cost:
                break
            over = total(self.moments.single, self.moments.pairs, chosen) - self.caps
            over = np.where((prices > 0) | (over > 0), over, 0.0)
            if not over.any():
                break
            goal = self.best.cost if np.isfinite(self.best.cost) else 2 * max(best, 1.0) + float(self.caps[0])
            move = pace * max(goal - bound, self.step) / float(over @ over)
            prices = np.maximum(0.0, prices + move * over)
        return best

    def _priced(self, prices: Table, by_cost: bool = True) -> Elimination:
        """Costs and priced memory; or only this, for values that go together."""
        costs, pairs = self.problem.costs, dict(self.problem.pairs)
        if not by_cost:
            costs = [np.zeros_like(table) for table in costs]
            pairs = {names: np.where(table >= FORBIDDEN, FORBIDDEN, 0.0) for names, table in pairs.items()}
        costs = [cost + single @ prices for cost, single in zip(costs, self.moments.single)]
        for names, at in self.moments.pairs.items():
            for moment, table in at.items():
                if prices[moment]:
                    pairs[names] = pairs[names] + prices[moment] * table if names in pairs else prices[moment] * table
        return Elimination(costs, pairs)

    def _least_of_moments(self) -> tuple[int, float]:
        """The moment at which all plans hold the most, and the least that any of them then holds."""
        apart = {names: np.where(t >= FORBIDDEN, FORBIDDEN, 0.0) for names, t in self.problem.pairs.items()}
        least = np.sum([single.min(axis=0) for single in self.moments.single], axis=0)
        operators = 2 * len(self.moments.operators)
        for moment in range(operators) if self.entries * operators < PRICE_ENTRIES else ():
            pairs = dict(apart)
            for names, at in self.moments.pairs.items():
                if moment in at:
                    pairs[names] = pairs[names] + at[moment] if names in pairs else at[moment]
            least[moment] = Elimination([single[:, moment] for single in self.moments.single], pairs).value
        return int(least[:operators].argmax()), float(least[:operators].max())

    def _refusal(self, why: str) -> str:
        """No plan meets the caps, or none was found: why, and the least peak that was."""
        both = "" if self.memory_cap is None else f" and keeps at most {self.memory_cap:,}"
        what = f"no plan that holds at most {self.peak:,} bytes on each device at any time{both} "
        what += f"is possible: {why}" if why.startswith("when") else f"was found: {why}" if why else "is possible"
        search = PeakSearch(self.problem, self.peak, None)
        search.best.least, search.best.peak = self.best.least, self.best.peak
        bound, proven = search.least_peak()
        least = search.best.least
        if least is None:
            return f"{what}; leave more operators open"
        first = "the smallest possible peak" if proven else "the smallest peak that was found"
        below = "" if proven else f"; none is below {int(np.ceil(bound)):,}"
        return f"{what}; {first} is {least.peak:,}, when {least.peak_moment}{below}"

    def least_peak(self) -> tuple[float, bool]:
        """Searches for the plan of the least peak, whatever it costs. Returns a lower bound, and whether it is
        reached."""
        bound, weights = self._weigh()
        if self.best.peak > bound:
            return bound, _Descent(self, self._priced(weights, by_cost=False), by_cost=False).run()
        return bound, True

    def _weigh(self) -> tuple[float, Table]:
        """A lower bound of all peaks, and the weights of moments that prove it; judges plans of low peaks on the way.

        No plan's peak is below the least weighted average. Moments at which the last plan holds much gain weight
        (multiplicative weights: Freund and Schapire 1999).
        """
        weights = np.ones(self.moments.count)
        weights[2 * len(self.moments.operators) :] = 0
        bound, best = self._least_of_moments()[1], weights / weights.sum()
        for _ in range(self.steps(WEIGHT_STEPS)):
            weights = weights / weights.sum()
            solved = self._priced(weights, by_cost=False)
            if solved.value > bound:
                bound, best = solved.value, weights
            chosen = solved.best()
            self._judge(chosen)
            held = total(self.moments.single, self.moments.pairs, chosen) * (weights > 0)
            weights = weights * np.exp(3 * (held / held.max() - 1))
        return bound, best

    def steps(self, most: int) -> int:
        """How many eliminations are worth their time."""
        return max(4, min(most, PRICE_ENTRIES // max(1, self.entries)))


class _Descent:
    """A depth-first search through the variables in the reverse order of an elimination."""

    def __init__(self, search: PeakSearch, priced: Elimination, by_cost: bool) -> None:
        self.search, self.priced, self.by_cost = search, priced, by_cost
        self.order = list(reversed(priced.order))
        place = {v: i for i, v in enumerate(self.order)}
        moments = search.moments
        self.spread = [single - single.min(axis=0) for single in moments.single]
        self.start = np.sum([single.min(axis=0) for single in moments.single], axis=0)
        self.pairs: list[list[tuple[int, int, Table]]] = [[] for _ in self.order]
        """By position: the other variable, the moment, and a table of its values x those of the variable there."""
        for (u, v), at in moments.pairs.items():
            for moment, table in at.items():
                least = float(table.min())
                self.start[moment] += least
                late = max(u, v, key=place.__getitem__)
                other = v if late == u else u
                self.pairs[place[late]].append((other, moment, (table.T if late == u else table) - least))
        self.complete_at: list[list[int]] = [[] for _ in self.order]
        """By position: operators whose variables are all set there."""
        for i, variables in enumerate(moments.variables):
            self.complete_at[max(place[v] for v in variables)].append(i)
        self.chosen: dict[int, int] = {}
        self.offset = float(search.prices @ search.caps) if by_cost else 0.0

    def run(self) -> bool:
        """False if it stopped before it had looked at everything."""
        self.search.nodes = 0
        if len(self.order) > MAX_VARIABLES:
            return False
        return self._visit(0, self.priced.value - self.offset, self.start)

    def _limit(self) -> Table | float:
        """What moments may hold; in a search for the least peak, less than the best plan so far."""
        search = self.search
        return search.caps if self.by_cost else search.best.peak - search.problem.graph.itemsize

    def _visit(self, depth: int, bound: float, held: Table) -> bool:
        search = self.search
        if depth == len(self.order):
            search._judge([self.chosen[v] for v in range(len(self.order))])
            return True
        v = self.order[depth]
        row = self.priced.row(v, self.chosen)
        bounds = bound + row - row.min()
        after = held + self.spread[v]
        for other, moment, table in self.pairs[depth]:
            after[:, moment] += table[self.chosen[other]]
        for value in np.argsort(bounds, kind="stable").tolist():
            if bounds[value] >= FORBIDDEN / 2:
                break
            if self.by_cost and bounds[value] > search.best.cost - search.step + 1e-6 * search.step:
                break
            if (after[value] > self._limit()).any():
                continue
            search.nodes += 1
            if search.nodes > MAX_NODES:
                return False
            self.chosen[v] = value
            if self._fits(depth, after[value]) and not self._visit(depth + 1, float(bounds[value]), after[value]):
                return False
        self.chosen.pop(v, None)
        return True

    def _fits(self, depth: int, held: Table) -> bool:
        """Whether the moves of operators that are complete here fit."""
        limit = self.search.peak if self.by_cost else self._limit()
        moments = self.search.moments
        return all(held[2 * i] + moments.surplus(i, self.chosen) <= limit for i in self.complete_at[depth])
