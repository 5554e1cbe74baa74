"""`solve`: the best schedule that search, textbooks and, for small problems, a constraint solver find; and its other
forms: a coroutine, a trace, a program.

A result is never worse than a textbook order that fits, since these are measured too. The figures of all candidates
are computed from their cells and the dependencies of a timetable, so they do not rest on the fast timing of `search`.

The constraint solver is an optional package and takes small problems only. It proves that nothing takes less, or finds
a better order; without it, the lower bound of `problem` says how far a schedule may be from the best.
"""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from types import MappingProxyType
from typing import Any, NamedTuple

from lib import COSTS, Costs, Model, RuleError, Setting, Size, Trace
from lib.pipelines.player import pipeline
from lib.pipelines.timetable import Cell, Dependencies, Timetable, in_order

from .problem import LowerBound, Problem, bound, is_number
from .search import EFFORT, PATTERN, TRIALS, Candidate, best, cells, orders, shortened, timed

# --- Solutions ---


@dataclass(frozen=True)
class Solution:
    """The best schedule found for a problem: a `table`, and its figures in the problem's unit of time."""

    problem: Problem
    table: Timetable
    starts: tuple[float, ...]
    """By rank, the start of its first operation."""
    ends: tuple[float, ...]
    """By rank, the end of its last operation."""
    held: tuple[float, ...]
    """By rank, the most that it holds at once."""
    is_proven: bool = False
    """A constraint solver has shown that nothing takes less."""

    @property
    def span(self) -> float:
        """The longest time that a rank takes, from its first start to its last end."""
        return round(max(end - start for start, end in zip(self.starts, self.ends)), 3)

    @property
    def makespan(self) -> float:
        return max(self.ends)

    @property
    def took(self) -> float:
        """The value of the measure that the problem minimizes."""
        return self.span if self.problem.least == "span" else self.makespan

    @property
    def bubble(self) -> float:
        """The share of the longest span in which its rank waits, as Zero Bubble counts it."""
        rank = max(range(self.problem.ranks), key=lambda rank: self.ends[rank] - self.starts[rank])
        return 1 - self.problem.time(self.problem.work(rank)) / self.span

    @property
    def bound(self) -> LowerBound:
        return bound(self.problem)

    @property
    def least(self) -> float:
        """The best lower bound: the computed bound, or what was proven."""
        return self.took if self.is_proven else self.problem.time(self.bound.ticks)

    @property
    def is_optimal(self) -> bool:
        return self.took <= self.least

    @property
    def size(self) -> Size:
        """A layer in each stage."""
        return Size(self.problem.stages, self.problem.microbatches, self.problem.ranks)

    @property
    def costs(self) -> Costs:
        """The prices of the problem. Messages overlap with computation, and other operations take no time.

        Raises:
            RuleError: the stages differ, and a puzzle has one price for all.
        """
        if not self.problem.is_even:
            raise RuleError(
                "a puzzle has one time for all stages, and this problem has times or sizes by stage, so it has no "
                "costs and no run; take its table (or a .csv file), its starts and its ends"
            )
        f, i, w, c = self.problem.typical
        ticks = {"forward": f, "backward": i + w, "loss": 0, "update": 0, "pass_to": c, "receive": 0}
        if not self.problem.whole:
            ticks |= {"backward_input": i, "backward_weight": w}
        return Costs(
            "solved",
            ticks=MappingProxyType(ticks),
            unit=self.problem.unit,
            gradient=COSTS["parts"].gradient,
            overlap=c > 0,
        )

    @property
    def setting(self) -> Setting:
        """The costs as a setting, for `run_async(found.schedule, *found.size, setting=found.setting)`."""
        return Setting(self.costs)

    @property
    def schedule(self) -> Callable[[Model], Coroutine[Any, Any, None]]:
        """A coroutine for each rank, which plays the order."""
        return pipeline(self.table, buffered=True)

    def trace(self) -> Trace:
        """A run of the schedule, even while an event loop is running, as in a notebook or in the browser."""
        from lib.ledger.runner import played  # here, since asyncio takes longer to import than all of lib

        return played(self.schedule, self.size, self.setting).trace

    def program(self) -> str:
        """A Python file with the schedule as a coroutine, and the problem that it solves."""
        prices = ", ".join(f'"{name}": {ticks}' for name, ticks in self.costs.ticks.items())
        rows = "\n".join(str(self.table).splitlines())
        return PROGRAM.format(
            size=tuple(self.size), prices=prices, costs=self.costs, rows=rows, span=self.span, makespan=self.makespan
        )


PROGRAM = '''\
"""A pipeline that a solver found: longest span {span:g}, over at {makespan:g}. Run this file to judge it."""

from types import MappingProxyType

from lib import Costs, Model, Setting, referee, run
from lib.pipelines import Timetable, pipeline

SIZE = {size}  # layers, microbatches, ranks
TICKS = {{{prices}}}
COSTS = Costs(
    "solved", ticks=MappingProxyType(TICKS), unit={costs.unit}, gradient={costs.gradient}, overlap={costs.overlap}
)

TABLE = Timetable.read(
    """\\
{rows}
"""
)


async def solved(model: Model) -> None:
    """What a rank does is its line of the table."""
    await pipeline(TABLE, buffered=True)(model)


if __name__ == "__main__":
    outcome = run(solved, *SIZE, setting=Setting(COSTS))
    if outcome.error:
        raise outcome.error
    report = referee(outcome.trace)
    print(f"over at {{report.makespan:g}}, longest span {{report.span:g}}")
'''


class Figures(NamedTuple):
    """By rank: the start of its first cell and the end of its last, in ticks, and its peak memory."""

    starts: list[int]
    ends: list[int]
    held: list[float]


def figures(problem: Problem, rows: Sequence[Sequence[Cell]]) -> Figures:
    """The figures of some rows of cells, each cell as early as possible. A rank sends one message after the other, as
    on a lane of the ledger."""
    f, i, w, c = problem.ticks
    length = {"F": f, "I": i, "W": w, "B": i}
    slots = [[(cell,) for cell in row] for row in rows]
    needs = Dependencies(slots)
    ends: dict[Cell, int] = {}
    arrived: dict[Cell, int] = {}
    clock, begun, lanes = ([0] * problem.ranks for _ in range(3))
    for rank, at in in_order(slots, needs):
        cell = rows[rank][at]
        ready = ((ends if needs.rank_of[needed] == rank else arrived)[needed] for needed in needs.of(cell))
        start = max(clock[rank], *ready, 0)
        begun[rank] = begun[rank] if at else start
        clock[rank] = ends[cell] = start + length[cell.op][cell.stage]
        if any(needs.sent(slots[rank][at])):
            arrived[cell] = lanes[rank] = max(clock[rank], lanes[rank]) + c
    assert len(ends) == len(needs.rank_of), "cells wait for each other"
    return Figures(begun, clock, [_most_held(problem, row) for row in rows])


def solution(problem: Problem, table: Timetable, is_proven: bool = False) -> Solution:
    """A table of the problem's stages with its figures."""
    by_rank = figures(problem, [[cell for slot in row for cell in slot] for row in table.rows])
    starts, ends = (tuple(map(problem.time, ticks)) for ticks in by_rank[:2])
    return Solution(problem, table, starts, ends, tuple(by_rank.held), is_proven)


def _most_held(problem: Problem, row: Sequence[Cell]) -> float:
    m_b, m_w = problem.by_stage("m_b"), problem.by_stage("m_w")
    kept = most = 0.0
    for stage, op, _ in row:
        kept += {"F": m_b[stage], "I": m_w[stage] - m_b[stage], "W": -m_w[stage], "B": -m_b[stage]}[op]
        most = max(most, kept)
    return round(most, 6)


# --- Solving ---

MAX_CELLS = 120
"""The most operations of a problem that the constraint solver gets."""


def proven(problem: Problem, known: Solution, seconds: float) -> Timetable | None:
    """The known order, or a better one, if it is shown that nothing takes less; None if the proof was not ready in
    time, the problem is too large, or ortools is missing."""
    if problem.stages * problem.microbatches * (2 if problem.whole else 3) > MAX_CELLS:
        return None
    try:
        cp_model = import_module("ortools.sat.python.cp_model")
    except ImportError:
        return None
    program = _Program(problem, cp_model.CpModel(), round(known.took * problem.unit) - 1)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(program.model)
    if status == cp_model.INFEASIBLE:
        return known.table
    if status != cp_model.OPTIMAL:
        return None
    order = sorted(program.at, key=lambda cell: (solver.value(program.at[cell]), cell.op == "W"))
    table = Timetable.of([c for c in order if problem.rank_of(c.stage) == r] for r in range(problem.ranks))
    is_played = round(solution(problem, table).took * problem.unit) == round(solver.objective_value)
    return table if is_played else None  # else its messages wait for each other


class _Program:
    """The constraints: nothing may take more than `most`. Each stage takes microbatches in order, because sorting the
    starts of an operation delays nothing and holds no more. That a rank sends one message after the other is left out;
    so what has no solution here has none, but a solution may take longer."""

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
    best_table = proven(problem, solved, proof_seconds)
    return solved if best_table is None else solution(problem, best_table, is_proven=True)


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
