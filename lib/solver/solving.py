"""`solve`: the best schedule that search, textbooks and, for small problems, a constraint solver find."""

from importlib import import_module
from itertools import product
from typing import Any, NamedTuple

from lib.errors import RuleError
from lib.schedules import Cell, Timetable

from .problem import Problem, is_number
from .search import EFFORT, TRIALS, Candidate, best, shortened
from .solution import Figures, Solution, figures, solution
from .textbook import PATTERN, cells, orders
from .timing import timed

MAX_CELLS = 120
"""The most operations of a problem that the constraint solver gets."""


class Proof(NamedTuple):
    """The result of a proof: nothing is better than `table`, or, if that is None, than what was known."""

    table: Timetable | None


def proven(problem: Problem, known: int, seconds: float) -> Proof | None:
    """The proof that nothing takes less than what is known, or than what it finds; None if it was not ready in time,
    the problem is too large, or ortools is missing."""
    if problem.stages * problem.microbatches * (2 if problem.whole else 3) > MAX_CELLS:
        return None
    try:
        cp_model = import_module("ortools.sat.python.cp_model")
    except ImportError:
        return None
    program = _Program(problem, cp_model.CpModel(), known - 1)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(program.model)
    if status == cp_model.INFEASIBLE:
        return Proof(None)
    if status != cp_model.OPTIMAL:
        return None
    order = sorted(program.at, key=lambda cell: (solver.value(program.at[cell]), cell.op == "W"))
    return Proof(Timetable.of([c for c in order if problem.rank_of(c.stage) == r] for r in range(problem.ranks)))


class _Program:
    """The constraints: nothing may take more than `most`. Each stage takes microbatches in order, because sorting the
    starts of an operation delays nothing and holds no more."""

    def __init__(self, problem: Problem, model: Any, most: int) -> None:
        self.problem, self.model = problem, model
        f, i, w, _ = problem.ticks
        self.lengths = {"F": f, "B": i} if problem.whole else {"F": f, "I": i, "W": w}
        self.back, self.last = ("B", "B") if problem.whole else ("I", "W")
        # A rank may begin later than rank 0 by the full way to it.
        horizon = most + (sum(f) + problem.ranks * problem.ticks.c if problem.least == "span" else 0)
        sizes = range(problem.stages), self.lengths, range(problem.microbatches)
        cells = [Cell(stage, op, batch) for stage, op, batch in product(*sizes)]
        self.at = {cell: model.new_int_var(0, horizon, str(cell)) for cell in cells}
        for stage in range(problem.stages):
            self.in_order(stage)
        longest = model.new_int_var(0, most, "longest")
        for rank in range(problem.ranks):
            self.on_rank(rank, [cell for cell in cells if problem.rank_of(cell.stage) == rank], longest)
        model.minimize(longest)

    def on_rank(self, rank: int, row: list[Cell], longest: Any) -> None:
        """One operation at a time, within the memory and the longest time."""
        model, (m_b, m_w, caps) = self.model, self.problem.sizes
        stages = self.problem.stages_of(rank)
        model.add_no_overlap([model.new_fixed_size_interval_var(self.at[c], self.length(c), "") for c in row])
        intervals = [
            (self.hold(Cell(s, first, b), Cell(s, then, b), after), size[s])
            for s in stages
            for b in range(self.problem.microbatches)
            for first, then, after, size in (
                [("F", self.back, 0, m_b)] + ([] if self.problem.whole else [("I", "W", self.lengths["I"][s], m_w)])
            )
        ]
        model.add_cumulative([interval for interval, _ in intervals], [size for _, size in intervals], caps[rank])
        begin = self.at[Cell(stages[0], "F", 0)] if self.problem.least == "span" else 0
        for cell in row:
            if cell.op == self.last and cell.batch == self.problem.microbatches - 1:
                model.add(self.at[cell] + self.length(cell) <= begin + longest)

    def length(self, cell: Cell) -> int:
        return self.lengths[cell.op][cell.stage]

    def hold(self, first: Cell, then: Cell, after: int) -> Any:
        start, end = self.at[first] + after, self.at[then] + self.length(then)
        size = self.model.new_int_var(0, 1 << 30, "")
        return self.model.new_interval_var(start, size, end, "")

    def before(self, first: Cell, then: Cell, lag: int = 0) -> None:
        self.model.add(self.at[first] + self.length(first) + lag <= self.at[then])

    def in_order(self, stage: int) -> None:
        problem, back = self.problem, self.back
        for b in range(problem.microbatches):
            self.before(Cell(stage, "F", b), Cell(stage, back, b))
            if not problem.whole:
                self.before(Cell(stage, "I", b), Cell(stage, "W", b))
            if stage:
                far = problem.ticks.c if problem.rank_of(stage - 1) != problem.rank_of(stage) else 0
                self.before(Cell(stage - 1, "F", b), Cell(stage, "F", b), far)
                self.before(Cell(stage, back, b), Cell(stage - 1, back, b), far)
            for op in self.lengths if b else ():
                self.before(Cell(stage, op, b - 1), Cell(stage, op, b))


PROOF_SECONDS = 20.0
MAX_SECONDS = 10**6

PATTERNS = 4
"""Settled patterns of a large problem that are tried."""


def solve(
    ranks: int,
    microbatches: int,
    *,
    effort: float = 1.0,
    proof_seconds: float = PROOF_SECONDS,
    **more: Any,
) -> Solution:
    """The best schedule found for a `Problem` with these fields.

    The search takes the same steps in every run, for seconds to half a minute; `effort` makes it longer or shorter. Its
    result is never worse than a textbook order that fits. If the package ortools is installed, a small problem is
    solved exactly, in up to `proof_seconds`.

    Raises:
        RuleError: there is no such problem, or nothing fits; the message says what would.
    """
    try:
        problem = Problem(ranks, microbatches, **more)
    except TypeError as why:
        unknown = str(why).rpartition(" ")[2]
        raise RuleError(f"a problem has no {unknown}; it has {', '.join(Problem.__match_args__)}") from None
    for name, number, most in (("effort", effort, 100), ("proof_seconds", proof_seconds, MAX_SECONDS)):
        if not is_number(number) or not 0 <= number <= most:
            raise RuleError(f"{name} must be from 0 to {most:,}; got {number!r:.40}")
    solved = _found(problem, effort)
    if solved.is_optimal or proof_seconds <= 0:
        return solved
    proof = proven(problem, round(solved.took * problem.unit), proof_seconds)
    if proof is None:
        return solved
    return solution(problem, proof.table or solved.table, is_proven=True)


def _found(problem: Problem, effort: float) -> Solution:
    """The best result of the search and of the textbooks."""
    known = [rows for name in _names(problem) if (rows := cells(problem, name))]
    candidate = best(problem, int(EFFORT * effort), max(int(TRIALS * effort), 1))
    if candidate is not None:
        known.insert(0, cells_of(problem, candidate))
    measured = [(figures(problem, rows), rows) for rows in known]
    fitting = [order for order in measured if problem.fits(order[0].held)]
    if not fitting:
        least = min((max(by_rank.held) for by_rank, _ in measured), default=problem.v * problem.ranks)
        raise RuleError(
            f"no schedule was found for a memory of {min(problem.caps):g}; take memory={least:g}, which an order needs"
        )
    return solution(problem, Timetable.of(min(fitting, key=lambda order: _measures(problem, order[0]))[1]))


def _names(problem: Problem) -> list[str]:
    """The published orders; of patterns, which take long to settle, only the best on few microbatches."""
    few = shortened(problem)
    names = [*orders(problem.placement, problem.whole)]
    patterns = [name for name in names if name.startswith(PATTERN)]
    if few == problem or not patterns:
        return names
    timed = [(_measures(few, figures(few, rows)), name) for name in patterns if (rows := cells(few, name))]
    return [name for name in names if name not in patterns] + [name for _, name in sorted(timed)[:PATTERNS]]


def _measures(problem: Problem, by_rank: Figures) -> tuple[int, int]:
    """The measure to minimize, then the other one."""
    span, makespan = max(end - start for start, end in zip(by_rank.starts, by_rank.ends)), max(by_rank.ends)
    return (span, makespan) if problem.least == "span" else (makespan, span)


def cells_of(problem: Problem, candidate: Candidate) -> list[list[Cell]]:
    """The cells of a candidate, by rank."""
    m, half = problem.microbatches, problem.stages * problem.microbatches
    numbers: list[list[int]] = [[] for _ in range(problem.ranks)]
    timed(problem, candidate.steps, candidate.policy, numbers)
    rows: list[list[Cell]] = []
    for row in numbers:
        backs = iter([number - half for number in row if number >= half])
        rows.append([])
        for number in row:
            op = "W" if number < 0 else "F" if number < half else "B" if problem.whole else "I"
            place = next(backs) if number < 0 else number % half
            rows[-1].append(Cell(place // m, op, place % m))
    return rows
