"""A schedule that was found: its order, its figures, and its other forms: a coroutine, a trace, a program."""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from lib import COSTS, Costs, Model, RuleError, Setting, Size, Trace
from lib.schedules import Cell, Timetable, pipeline
from lib.schedules.cells import Dependencies, in_order

from .bounds import LowerBound, bound
from .problem import Problem


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
        from lib.runtime.runner import played  # here, since asyncio takes longer to import than all of lib

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
from lib.schedules import Timetable, pipeline

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
    """The figures of some rows of cells, each cell as early as possible."""
    f, i, w, c = problem.ticks
    length = {"F": f, "I": i, "W": w, "B": i}
    slots = [[(cell,) for cell in row] for row in rows]
    needs = Dependencies(slots)
    ends: dict[Cell, int] = {}
    clock, begun = [0] * problem.ranks, [0] * problem.ranks
    for rank, at in in_order(slots, needs):
        cell = rows[rank][at]
        ready = (ends[needed] + c * (needs.rank_of[needed] != rank) for needed in needs.of(cell))
        start = max(clock[rank], *ready, 0)
        begun[rank] = begun[rank] if at else start
        clock[rank] = ends[cell] = start + length[cell.op][cell.stage]
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
