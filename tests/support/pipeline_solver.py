"""Pipelines as a constraint program (CP-SAT): is there one that ends in time and holds no more than so much?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from lib.schedules import Cell, Timetable

SECONDS = 300
"""A proof takes up to a minute on two loaded cores; after this it has failed."""


class Sizes(NamedTuple):
    """What a rank holds of each stage, in any unit. By default only activations count, as papers count them."""

    activation: int = 1
    """Of a microbatch: from the start of F, or where it is made, to the end of the whole backward."""
    output: int = 0
    """What F makes, until it is sent: it is held at the end of F, beside all that was held during F."""
    gradient: int = 0
    """What a backward starts from. With two halves: from the start of I to the end of W."""
    weight: int = 0
    """The sum of weight gradients: from the end of the first backward, or W, of a step to the end of the last."""


class Problem(NamedTuple):
    """p ranks of v looped stages, m microbatches, all within `horizon`. An operation takes 1, a whole backward 2. No
    rank may hold more than `cap`; with `first_is_free` the input of stage 0 counts only while it is used, since rank 0
    can take the model's input again at any time.

    Each operation runs once, on the rank of its stage, and nothing is put aside on other ranks. Weights and optimizer
    states are not counted. What is left out (values that exist between two operations) can only be more, so what is
    infeasible here is so in the ledger.
    """

    p: int
    m: int
    horizon: int
    cap: int
    split: bool = False
    v: int = 1
    steps: int = 1
    first_is_free: bool = False
    sizes: Sizes = Sizes()
    sharded: bool = False
    """Each stage gathers its weight before its first F, and scatters its gradient after its last backward: 1 each."""


def solved(problem: Problem, starts: Mapping[Cell, int] | None = None) -> list[Timetable] | None:
    """A timetable for each step, or None if it is proven that there is none. With `starts`, of all operations, only
    the pipeline that starts them so is considered; microbatches of all steps are counted on.

    Raises:
        TimeoutError: neither was found in time.
    """
    from ortools.sat.python import cp_model

    program = cp_model.CpModel()
    p, m, horizon, cap, split, v, steps, first_is_free, sizes, sharded = problem
    computing = {"F": 1, "I": 1, "W": 1} if split else {"F": 1, "B": 2}
    lengths = computing | {"G": 1, "S": 1}
    turns, back, last = range(steps * m), "I" if split else "B", "W" if split else "B"
    at: dict[Cell, Any] = {}
    for stage in range(p * v):
        for op, length in computing.items():
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
            for op in computing:  # sorting keeps what precedes what, and how many are held: so they may be in order
                if k:
                    before(Cell(stage, op, k - 1), Cell(stage, op, k))
            if k and k % m == 0:  # the weight of the next step
                before(Cell(stage, last, k - 1), Cell(stage, "F", k))
        if sharded:
            gather, scatter = Cell(stage, "G", 0), Cell(stage, "S", 0)
            for cell in (gather, scatter):
                at[cell] = program.new_int_var(0, horizon - 1, str(cell))
            before(gather, Cell(stage, "F", 0))
            before(Cell(stage, last, turns[-1]), scatter)
    for rank in range(p):
        mine = [cell for cell in at if cell.stage % p == rank]
        program.add_no_overlap([program.new_fixed_size_interval_var(at[c], lengths[c.op], str(c)) for c in mine])
        held = []

        def hold(first: Cell, then: Cell, size: int, after: int = 0) -> None:
            """From the start of one operation, or `after` it, to the end of another."""
            if size:
                end, length = at[then] + lengths[then.op], program.new_int_var(0, horizon, "")
                held.append((program.new_interval_var(at[first] + after, length, end, ""), size))

        for cell in (cell for cell in mine if cell.op in computing):
            stage, op, k = cell
            is_free = first_is_free and stage == 0
            if is_free:
                hold(cell, cell, max(sizes.activation, sizes.output if op == "F" else 0))
            elif op == "F":
                hold(cell, cell._replace(op=last), sizes.activation)
                hold(cell, cell, sizes.output)
            if op == back:
                hold(cell, cell._replace(op=last), sizes.gradient)
            if op == last and k % m == 0:
                hold(cell, cell._replace(batch=k + m - 1), sizes.weight, after=lengths[last])
        program.add_cumulative([interval for interval, _ in held], [size for _, size in held], cap)
    for cell, start in (starts or {}).items():
        program.add(at[cell] == start)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = SECONDS
    status = solver.solve(program)
    if status == cp_model.INFEASIBLE:
        return None
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise TimeoutError(f"{problem} is not decided after {SECONDS} s")
    found = {cell: solver.value(variable) for cell, variable in at.items()}
    return [_timetable(found, p, range(step * m, step * m + m)) for step in range(steps)]


def _timetable(start: dict[Cell, int], p: int, turns: range) -> Timetable:
    """The rows of one step."""
    cells = sorted(
        (cell for cell in start if cell.batch in turns and cell.op not in "GS"), key=lambda cell: start[cell]
    )
    return Timetable.of(
        [c._replace(batch=c.batch - turns.start) for c in cells if c.stage % p == rank] for rank in range(p)
    )
