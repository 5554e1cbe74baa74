"""Proofs for small problems: with the package ortools, a constraint program finds the best schedule, or proves that
there is no better one."""

from importlib import import_module
from typing import Any, NamedTuple

from lib.schedules import Cell, Timetable

from .problem import Problem

MAX_CELLS = 120
"""Operations of a problem that is tried."""


class Proof(NamedTuple):
    """What was proven: that nothing is better than `table`, or, if that is None, than what was known."""

    table: Timetable | None


def proven(problem: Problem, known: int, seconds: float) -> Proof | None:
    """The proof that nothing takes less than what is known, or than what is found; None if there was none in time, or
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
    """The constraints: nothing may take more than `most`. Microbatches are taken in order in each stage: to sort the
    starts of an operation delays nothing that others wait for, and no more is held."""

    def __init__(self, problem: Problem, model: Any, most: int) -> None:
        self.problem, self.model = problem, model
        f, i, w, _ = problem.ticks
        self.lengths = {"F": f, "B": i} if problem.whole else {"F": f, "I": i, "W": w}
        self.back, self.last = ("B", "B") if problem.whole else ("I", "W")
        # A rank may begin later than rank 0 by the full way to it.
        horizon = most + (sum(f) + problem.ranks * problem.ticks.c if problem.least == "span" else 0)
        cells = [
            Cell(stage, op, batch)
            for stage in range(problem.stages)
            for op in self.lengths
            for batch in range(problem.microbatches)
        ]
        self.at = {cell: model.new_int_var(0, horizon, str(cell)) for cell in cells}
        for stage in range(problem.stages):
            self.in_order(stage)
        longest = model.new_int_var(0, most, "longest")
        for rank in range(problem.ranks):
            self.on_rank(rank, [cell for cell in cells if problem.rank_of(cell.stage) == rank], longest)
        model.minimize(longest)

    def on_rank(self, rank: int, mine: list[Cell], longest: Any) -> None:
        """One operation at a time, within the memory, and within the longest time."""
        model, (m_b, m_w, caps) = self.model, self.problem.sizes
        stages = self.problem.stages_of(rank)
        model.add_no_overlap([model.new_fixed_size_interval_var(self.at[c], self.length(c), "") for c in mine])
        held = [
            (self.hold(Cell(s, first, b), Cell(s, then, b), after), size[s])
            for s in stages
            for b in range(self.problem.microbatches)
            for first, then, after, size in (
                [("F", self.back, 0, m_b)] + ([] if self.problem.whole else [("I", "W", self.lengths["I"][s], m_w)])
            )
        ]
        model.add_cumulative([interval for interval, _ in held], [size for _, size in held], caps[rank])
        begin = self.at[Cell(stages[0], "F", 0)] if self.problem.least == "span" else 0
        for cell in mine:
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
