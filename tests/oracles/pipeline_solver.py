"""Pipelines as a constraint program (CP-SAT): is there one that ends in time and holds no more than so much?"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from lib.pipelines import Cell, Timetable

SECONDS = 300
"""A proof takes up to a minute on two loaded cores; after this it has failed."""


class Sizes(NamedTuple):
    """What a rank holds of each stage, in any unit. By default only activations count, as papers count them."""

    activation: int = 1
    """Of a microbatch: from the start of F to the end of the whole backward."""
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

    program = _Program(problem, cp_model.CpModel())
    for cell, start in (starts or {}).items():
        program.model.add(program.at[cell] == start)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = SECONDS
    status = solver.solve(program.model)
    if status == cp_model.INFEASIBLE:
        return None
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise TimeoutError(f"{problem} is not decided after {SECONDS} s")
    found = {cell: solver.value(variable) for cell, variable in program.at.items() if cell.op in program.lengths}
    p, m = problem.p, problem.m
    return [_timetable(found, p, range(step * m, step * m + m)) for step in range(problem.steps)]


class _Program:
    """The constraints of a problem. Microbatches of all steps are counted on."""

    def __init__(self, problem: Problem, model: Any) -> None:
        self.problem, self.model = problem, model
        self.lengths = {"F": 1, "I": 1, "W": 1} if problem.split else {"F": 1, "B": 2}
        self.back, self.last = ("I", "W") if problem.split else ("B", "B")
        self.turns = range(problem.steps * problem.m)
        stages = range(problem.p * problem.v)
        cells = [Cell(stage, op, k) for stage in stages for op in self.lengths for k in self.turns]
        if problem.sharded:
            cells += [Cell(stage, op, 0) for stage in stages for op in "GS"]
        self.at = {cell: model.new_int_var(0, problem.horizon - self.length(cell), str(cell)) for cell in cells}
        for stage in stages:
            self.in_order(stage)
        for rank in range(problem.p):
            mine = [cell for cell in cells if cell.stage % problem.p == rank]
            model.add_no_overlap([model.new_fixed_size_interval_var(self.at[c], self.length(c), "") for c in mine])
            held = [interval for cell in mine for interval in self.held_from(cell)]
            model.add_cumulative([interval for interval, _ in held], [size for _, size in held], problem.cap)

    def length(self, cell: Cell) -> int:
        return self.lengths.get(cell.op, 1)

    def before(self, first: Cell, then: Cell) -> None:
        self.model.add(self.at[first] + self.length(first) <= self.at[then])

    def in_order(self, stage: int) -> None:
        """What precedes what. Microbatches may be taken in order, and I before W: to sort the starts of an operation,
        or to exchange the halves of a backward, delays nothing that others wait for, and no more is held."""
        for k in self.turns:
            self.before(Cell(stage, "F", k), Cell(stage, self.back, k))
            if self.problem.split:
                self.before(Cell(stage, "I", k), Cell(stage, "W", k))
            if stage:
                self.before(Cell(stage - 1, "F", k), Cell(stage, "F", k))
                self.before(Cell(stage, self.back, k), Cell(stage - 1, self.back, k))
            for op in self.lengths if k else ():
                self.before(Cell(stage, op, k - 1), Cell(stage, op, k))
            if k and k % self.problem.m == 0:  # the weight of the next step
                self.before(Cell(stage, self.last, k - 1), Cell(stage, "F", k))
        if self.problem.sharded:
            self.before(Cell(stage, "G", 0), Cell(stage, "F", 0))
            self.before(Cell(stage, self.last, self.turns[-1]), Cell(stage, "S", 0))

    def held_from(self, cell: Cell) -> Iterator[tuple[Any, int]]:
        """What an operation makes the rank hold: intervals of time, and how much in each."""
        sizes, m = self.problem.sizes, self.problem.m
        stage, op, k = cell
        done = Cell(stage, self.last, k)
        if self.problem.first_is_free and stage == 0:
            if op in self.lengths:
                yield self.hold(cell, cell), max(sizes.activation, sizes.output if op == "F" else 0)
        elif op == "F":
            yield self.hold(cell, done), sizes.activation
            yield self.hold(cell, cell), sizes.output
        if op == self.back:
            yield self.hold(cell, done), sizes.gradient
        if op == self.last and k % m == 0:
            yield self.hold(cell, Cell(stage, op, k + m - 1), after=self.length(cell)), sizes.weight

    def hold(self, first: Cell, then: Cell, after: int = 0) -> Any:
        """From the start of one operation, or `after` it, to the end of another."""
        end = self.at[then] + self.length(then)
        size = self.model.new_int_var(0, self.problem.horizon, "")
        return self.model.new_interval_var(self.at[first] + after, size, end, "")


def _timetable(start: dict[Cell, int], p: int, turns: range) -> Timetable:
    """The rows of one step."""
    cells = sorted((cell for cell in start if cell.batch in turns), key=lambda cell: start[cell])
    return Timetable.of(
        [c._replace(batch=c.batch - turns.start) for c in cells if c.stage % p == rank] for rank in range(p)
    )
