"""Linear programs with binary variables, solved by HiGHS (Huangfu and Hall 2018), which scipy has.

scipy is an extra, so it is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from math import inf
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

Terms = dict[int, float]
"""Coefficients by variable."""
FIRST_GAP = 0.06
"""How far above the relaxation, relative to it, solutions are looked for first."""
TOLERANCE = 1e-6
"""How close the solver's bound is, relative to it. Costs are multiples of their greatest common divisor."""
INFEASIBLE, OUT_OF_TIME = 2, 1
"""What scipy calls these."""


class LinearSolution(NamedTuple):
    """The value of each variable, if any solution was found, and what no solution costs less than: `inf` if there is
    none."""

    values: Any
    bound: float


def is_solver_here() -> bool:
    """True if scipy is installed."""
    return find_spec("scipy") is not None


class LinearProgram:
    """Variables from 0 up to a bound, each with its cost, and constraints on sums of them."""

    def __init__(self) -> None:
        self.costs: list[float] = []
        self.most: list[float] = []
        self.is_whole: list[bool] = []
        self.rows: list[tuple[Terms, float, float]] = []

    def variable(self, cost: float = 0.0, is_whole: bool = True, most: float = 1.0) -> int:
        """The number of a new variable."""
        self.costs.append(cost)
        self.most.append(most)
        self.is_whole.append(is_whole)
        return len(self.costs) - 1

    def row(self, terms: Terms, low: float, high: float = inf) -> None:
        """The sum of these terms is between the two."""
        self.rows.append((terms, low, high))

    def one_of(self, variables: Iterable[int]) -> None:
        """Exactly one of these is 1."""
        self.row(dict.fromkeys(variables, 1.0), 1, 1)

    def solve(self, costs: Sequence[float], seconds: float, known: float = inf) -> LinearSolution:
        """The solution of least cost that is found within that time.

        In a solution that costs at most `gap` more than the relaxation, no variable with a larger reduced cost is 1
        (Crowder, Johnson and Padberg 1983). So these are left out; if the best solution without them costs more, the
        gap grows and they are asked again. `known` is what some solution costs.
        """
        end = monotonic() + seconds
        scale = max(1.0, *costs)
        scaled = np.array(costs) / scale
        relaxed = self._solved(scaled, np.array(self.most), seconds, whole=False)
        if relaxed.status == INFEASIBLE:
            return LinearSolution(None, inf)
        least, reduced = 0.0, np.zeros(len(costs))
        if relaxed.status == 0:
            least, reduced = relaxed.fun, np.where(np.array(self.most) == 1, relaxed.lower.marginals, 0)
        gap = min(least * FIRST_GAP, known / scale - least)
        while True:
            kept = reduced <= gap + TOLERANCE
            done = self._solved(scaled, np.where(kept, self.most, 0), max(0.01, end - monotonic()))
            above = inf if done.x is None else float(done.fun) - least
            if kept.all() or done.status == OUT_OF_TIME or above <= gap + TOLERANCE:
                bound = inf if done.status == INFEASIBLE else max(least, done.mip_dual_bound or 0.0)
                return LinearSolution(done.x, (bound if kept.all() else min(bound, least + gap)) * scale)
            gap = above if done.x is not None else max(4 * gap, least, TOLERANCE)

    def _solved(self, costs: Any, most: Any, seconds: float, whole: bool = True) -> Any:
        from scipy.optimize import Bounds, LinearConstraint, linprog, milp
        from scipy.sparse import csr_matrix, vstack

        starts = np.cumsum([0, *(len(terms) for terms, _, _ in self.rows)])
        columns = [v for terms, _, _ in self.rows for v in terms]
        values = [c for terms, _, _ in self.rows for c in terms.values()]
        matrix = csr_matrix((values, columns, starts), shape=(len(self.rows), len(costs)))
        low, high = (np.array([row[i] for row in self.rows]) for i in (1, 2))
        if whole:
            constraints = LinearConstraint(matrix, low, high)
            options = {"time_limit": seconds, "mip_rel_gap": 0}
            return milp(
                costs, integrality=self.is_whole, bounds=Bounds(0, most), constraints=constraints, options=options
            )
        same, below, above = low == high, (low < high) & (high < inf), (low < high) & (low > -inf)
        return linprog(
            costs,
            vstack([matrix[below], -matrix[above]]),
            np.concatenate([high[below], -low[above]]),
            matrix[same],
            high[same],
            bounds=np.stack([np.zeros(len(costs)), most], axis=1),
            options={"time_limit": seconds},
        )


def added(*sums: Terms, times: float = 1.0) -> Terms:
    """The sum of several sums, times a factor."""
    found: Terms = {}
    for terms in sums:
        for v, c in terms.items():
            found[v] = found.get(v, 0.0) + c * times
    return found
