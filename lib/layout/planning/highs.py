"""Linear programs with binary variables, solved by HiGHS (Huangfu and Hall 2018), which scipy has.

scipy is an extra, so it is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from math import inf
from typing import Any

import numpy as np

Terms = dict[int, float]
"""Coefficients by variable."""


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

    def solve(self, costs: list[float], seconds: float) -> Any:
        """What scipy returns: `status`, `x`, and `mip_dual_bound` in units of the largest cost or 1."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_matrix

        starts = np.cumsum([0, *(len(terms) for terms, _, _ in self.rows)])
        columns = [v for terms, _, _ in self.rows for v in terms]
        values = [c for terms, _, _ in self.rows for c in terms.values()]
        matrix = csr_matrix((values, columns, starts), shape=(len(self.rows), len(costs)))
        low, high = ([row[i] for row in self.rows] for i in (1, 2))
        return milp(
            np.array(costs) / max(1.0, *costs),
            integrality=self.is_whole,
            bounds=Bounds(0, np.array(self.most)),
            constraints=LinearConstraint(matrix, low, high),
            options={"time_limit": seconds, "mip_rel_gap": 0},
        )


def added(*sums: Terms, times: float = 1.0) -> Terms:
    """The sum of several sums, times a factor."""
    found: Terms = {}
    for terms in sums:
        for v, c in terms.items():
            found[v] = found.get(v, 0.0) + c * times
    return found
