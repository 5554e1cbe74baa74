"""Minimum cost under a memory cap: a Lagrangian bound, then a search of all trade-offs that could be cheaper.

The price (Lagrange 1797; Held and Karp 1971; Everett 1963) gives a lower bound and a good plan. Anything cheaper lies
in between, mostly close to the bound. So plans that cost at most a little more than the bound are searched first, and
the search is widened only if there are none (Korf 1985, "Depth-first iterative-deepening"). A narrow search is fast,
because few values and few partial choices can still end within it.
"""

from collections.abc import Sequence

import numpy as np

from .elimination import FORBIDDEN, Elimination, Pairs, Table
from .pareto import ParetoElimination


def cheapest(costs: Sequence[Table], memory: Sequence[Table], pairs: Pairs, cap: float | None) -> list[int]:
    """The values of minimum cost with memory of at most `cap`, which must be feasible.

    Costs and memory are whole numbers, in tables of doubles.
    """
    free = Elimination(costs, pairs)
    chosen = free.best()
    if cap is None or _sum(memory, chosen) <= cap:
        return chosen
    chosen, price, lower = _priced(costs, memory, pairs, cap, chosen, free.value)
    best = total_cost(costs, pairs, chosen)
    # A better plan is cheaper by at least the greatest common divisor of all costs.
    step = cost_step([*costs, *pairs.values()])
    ceiling = best - step + 1e-9 * max(1.0, best)
    if lower > ceiling:
        return chosen
    priced = Elimination(_weighed(costs, memory, price), pairs)
    through = priced.through()
    gap = max(float(step), (ceiling - lower) / 256)
    while True:
        target = min(lower + gap, ceiling)
        keep = [np.flatnonzero(table - price * cap <= target) for table in through]
        found = None
        if all(len(states) for states in keep):
            found = ParetoElimination(costs, memory, pairs, keep, cap, target, priced, price * cap).best()
        if found is not None:
            return found
        if target == ceiling:
            return chosen
        gap *= 4


def cost_step(tables: Sequence[Table]) -> int:
    """The greatest common divisor of all entries, whole numbers; 1 if all are zero."""
    numbers = [np.unique(table[table < FORBIDDEN]).astype(np.int64) for table in tables]
    return int(np.gcd.reduce([int(np.gcd.reduce(each)) for each in numbers])) or 1


def _priced(
    costs: Sequence[Table], memory: Sequence[Table], pairs: Pairs, cap: float, over: list[int], cost: float
) -> tuple[list[int], float, float]:
    """A good choice within the cap, the price that gives the best bound, and that bound.

    Walks the lower hull of (memory, cost) between a choice above the cap and one below.
    """
    under = _least_memory(costs, memory, pairs)
    best, price, lower = under, 0.0, cost
    above, below = (_sum(memory, over), cost), (_sum(memory, under), total_cost(costs, pairs, under))
    best_cost = below[1]
    for _ in range(100):
        if above[0] <= below[0]:
            break
        slope = (below[1] - above[1]) / (above[0] - below[0])
        if slope <= 0:
            break
        solved = Elimination(_weighed(costs, memory, slope), pairs)
        found = solved.best()
        point = (_sum(memory, found), total_cost(costs, pairs, found))
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


def _least_memory(costs: Sequence[Table], memory: Sequence[Table], pairs: Pairs) -> list[int]:
    with_forbidden = {id(table): table for table in pairs.values() if table.max() >= FORBIDDEN}
    apart = {number: np.where(table < FORBIDDEN, 0, table) for number, table in with_forbidden.items()}
    forbidden = {pair: apart[id(table)] for pair, table in pairs.items() if id(table) in apart}
    most = max(float(table[table < FORBIDDEN].max(initial=0)) for table in costs) + 1
    return Elimination(_weighed(memory, costs, 1e-9 / most), forbidden).best()


def _weighed(costs: Sequence[Table], memory: Sequence[Table], price: float) -> list[Table]:
    """Costs plus priced memory; the same object where both are the same."""
    made: dict[tuple[int, int], Table] = {}
    return [made.setdefault((id(c), id(m)), c + price * m) for c, m in zip(costs, memory)]


def _sum(tables: Sequence[Table], chosen: Sequence[int]) -> float:
    return float(sum(table[state] for table, state in zip(tables, chosen)))


def total_cost(costs: Sequence[Table], pairs: Pairs, chosen: Sequence[int]) -> float:
    return _sum(costs, chosen) + float(sum(table[tuple(chosen[v] for v in names)] for names, table in pairs.items()))
