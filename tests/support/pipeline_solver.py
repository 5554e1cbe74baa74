"""Pipelines as a constraint program (CP-SAT): is there one that ends in time and holds no more than so many chunks?"""

from __future__ import annotations

from typing import Any, NamedTuple

from lib.schedules import Cell, Timetable

SECONDS = 300
"""A proof takes up to a minute on two loaded cores; after this it has failed."""


class Problem(NamedTuple):
    """p ranks of v looped stages, m microbatches, all within `horizon`. An operation takes 1, a whole backward 2. No
    rank may hold more than `cap` microbatches of a chunk, from the start of F to the end of backward; with
    `first_is_free` that does not count on rank 0, which can take the model's input again at any time."""

    p: int
    m: int
    horizon: int
    cap: int
    split: bool = False
    v: int = 1
    steps: int = 1
    first_is_free: bool = False


def solved(problem: Problem) -> list[Timetable] | None:
    """A timetable for each step, or None if it is proven that there is none.

    Raises:
        TimeoutError: neither was found in time.
    """
    from ortools.sat.python import cp_model

    program = cp_model.CpModel()
    p, m, horizon, cap, split, v, steps, first_is_free = problem
    lengths = {"F": 1, "I": 1, "W": 1} if split else {"F": 1, "B": 2}
    turns, back, last = range(steps * m), "I" if split else "B", "W" if split else "B"
    at: dict[Cell, Any] = {}  # microbatches of all steps are counted on
    for stage in range(p * v):
        for op, length in lengths.items():
            for k in turns:
                at[Cell(stage, op, k)] = program.new_int_var(0, horizon - length, f"{stage}{op}{k}")

    def before(first: Cell, then: Cell) -> None:
        program.add(at[first] + lengths[first.op] <= at[then])

    for stage in range(p * v):
        for k in turns:
            before(Cell(stage, "F", k), Cell(stage, back, k))
            if split:
                before(Cell(stage, "I", k), Cell(stage, "W", k))
            if stage:
                before(Cell(stage - 1, "F", k), Cell(stage, "F", k))
                before(Cell(stage, back, k), Cell(stage - 1, back, k))
            for op in lengths:  # microbatches are alike, so they may as well be in order
                if k:
                    before(Cell(stage, op, k - 1), Cell(stage, op, k))
            if k and k % m == 0:  # the weight of the next step
                before(Cell(stage, last, k - 1), Cell(stage, "F", k))
    for rank in range(p):
        mine = [cell for cell in at if cell.stage % p == rank]
        program.add_no_overlap([program.new_fixed_size_interval_var(at[c], lengths[c.op], str(c)) for c in mine])
        if rank or not first_is_free:
            kept = []
            for cell in mine:
                if cell.op == "F":
                    end = at[cell._replace(op=last)] + lengths[last]
                    size = program.new_int_var(0, horizon, "")
                    kept.append(program.new_interval_var(at[cell], size, end, ""))
            program.add_cumulative(kept, [1] * len(kept), cap)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = SECONDS
    status = solver.solve(program)
    if status == cp_model.INFEASIBLE:
        return None
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise TimeoutError(f"{problem} is not decided after {SECONDS} s")
    start = {cell: solver.value(variable) for cell, variable in at.items()}
    return [_timetable(start, p, range(step * m, step * m + m)) for step in range(steps)]


def _timetable(start: dict[Cell, int], p: int, turns: range) -> Timetable:
    """The rows of one step."""
    cells = sorted((cell for cell in start if cell.batch in turns), key=lambda cell: start[cell])
    return Timetable.of(
        [c._replace(batch=c.batch - turns.start) for c in cells if c.stage % p == rank] for rank in range(p)
    )
