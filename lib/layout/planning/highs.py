"""Linear programs with binary variables, solved by HiGHS (Huangfu and Hall 2018).

The effort of a search is the number of times that HiGHS asks whether to go on: after each round of cuts, each node and
each dive. That is the same on every machine, while a limit in seconds is not. HiGHS runs on one thread for that reason.

highspy is an extra, so it is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from math import inf
from typing import Any, NamedTuple

import numpy as np

Terms = dict[int, float]
"""Coefficients by variable."""
FIRST_GAP = 0.0005
"""How far above the relaxation, relative to it, solutions are looked for first."""
TOLERANCE = 1e-6
"""How close the solver's bound is, relative to it. Costs are multiples of their greatest common divisor."""
MAX_ITERATIONS = 1000
"""Steps of the simplex method on a relaxation for each step of effort."""


class LinearSolution(NamedTuple):
    """The value of each variable, if any solution was found, and what no solution costs less than: `inf` if there is
    none."""

    values: Any
    bound: float


def is_solver_here() -> bool:
    """True if highspy is installed."""
    return find_spec("highspy") is not None


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

    def solve(self, costs: Sequence[float], effort: int, known: float = inf) -> LinearSolution:
        """The solution of least cost that is found with that effort; none if no solution costs less than `known`.

        In a solution that costs at most `gap` more than the relaxation, no variable with a larger reduced cost is 1
        (Crowder, Johnson and Padberg 1983). So these are left out; if the best solution without them costs more, the
        gap grows and they are asked again.
        """
        scale = max(1.0, *costs)
        problem = self._written(np.array(costs) / scale)
        relaxed = self._solved(problem, np.array(self.most), effort, whole=False)
        if relaxed.bound == inf:
            return LinearSolution(None, inf)
        least, reduced = 0.0, np.zeros(len(costs))
        if relaxed.is_done:
            least, reduced = relaxed.cost, np.where(np.array(self.most) == 1, relaxed.reduced, 0)
        widest = known / scale - least
        if widest <= TOLERANCE * least:
            return LinearSolution(None, known)
        gap = min(least * FIRST_GAP, widest)
        while True:
            kept = reduced <= gap + TOLERANCE
            answer = self._solved(problem, np.where(kept, self.most, 0), effort)
            above = answer.cost - least
            if kept.all() or gap == widest or not answer.is_done or above <= gap + TOLERANCE:
                bound = max(least, answer.bound)
                return LinearSolution(answer.values, (bound if kept.all() else min(bound, least + gap)) * scale)
            gap = min(widest, above if answer.values is not None else max(4 * gap, least, TOLERANCE))

    def _written(self, costs: Any) -> Any:
        """The program as HiGHS takes it, which is written once: searches differ in bounds and in what is whole."""
        import highspy

        problem, matrix = highspy.HighsLp(), highspy.HighsSparseMatrix()
        problem.num_col_, problem.num_row_ = len(costs), len(self.rows)
        problem.col_cost_, problem.col_lower_ = costs, np.zeros(len(costs))
        problem.row_lower_, problem.row_upper_ = (np.array([row[i] for row in self.rows]) for i in (1, 2))
        matrix.format_ = highspy.MatrixFormat.kRowwise
        matrix.num_col_, matrix.num_row_ = len(costs), len(self.rows)
        matrix.start_ = np.cumsum([0, *(len(terms) for terms, _, _ in self.rows)])
        matrix.index_ = [v for terms, _, _ in self.rows for v in terms]
        matrix.value_ = [c for terms, _, _ in self.rows for c in terms.values()]
        problem.a_matrix_ = matrix
        return problem

    def _solved(self, problem: Any, most: Any, effort: int, whole: bool = True) -> _Answer:
        import highspy

        highs: Any = highspy
        solver = highs.Highs()
        problem.col_upper_ = most
        kinds = highs.HighsVarType.kContinuous, highs.HighsVarType.kInteger
        problem.integrality_ = [kinds[is_whole] for is_whole in self.is_whole] if whole else []
        options = {"output_flag": False, "threads": 1, "mip_rel_gap": 0.0, "mip_abs_gap": 1e-8}
        for option, value in {**options, "simplex_iteration_limit": max(1, effort) * MAX_ITERATIONS}.items():
            solver.setOptionValue(option, value)
        steps = 0

        def count(event: Any) -> None:
            nonlocal steps
            steps += 1
            if steps > effort:
                event.interrupt()

        solver.cbMipInterrupt.subscribe(count)
        solver.passModel(problem)
        solver.run()
        return _Answer.of_solver(highs, solver, whole)


class _Answer(NamedTuple):
    """What the solver says: whether this is the end of the search, the values and cost of the best solution, if there
    is any, and what none costs less than; of a relaxation, the reduced costs."""

    is_done: bool
    values: Any
    cost: float
    bound: float
    reduced: Any = None

    @classmethod
    def of_solver(cls, highs: Any, solver: Any, whole: bool) -> _Answer:
        status, info, solution = solver.getModelStatus(), solver.getInfo(), solver.getSolution()
        if status in (highs.HighsModelStatus.kInfeasible, highs.HighsModelStatus.kUnboundedOrInfeasible):
            return cls(True, None, inf, inf)
        is_done = status == highs.HighsModelStatus.kOptimal
        if info.primal_solution_status != highs.SolutionStatus.kSolutionStatusFeasible:
            return cls(is_done, None, inf, info.mip_dual_bound if whole else 0.0)
        values, cost = np.array(solution.col_value), info.objective_function_value
        return cls(is_done, values, cost, info.mip_dual_bound if whole else cost, np.array(solution.col_dual))


def added(*sums: Terms, times: float = 1.0) -> Terms:
    """The sum of several sums, times a factor."""
    total: Terms = {}
    for terms in sums:
        for v, c in terms.items():
            total[v] = total.get(v, 0.0) + c * times
    return total
