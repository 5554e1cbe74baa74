"""A schedule that was found: its order, what it takes, and what else it can be: a coroutine, a trace, a program."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from lib import Costs, Model, Setting, Size, Trace, run
from lib.named_costs import COSTS
from lib.schedules import Cell, Timetable, pipeline

from .bounds import Least, bound
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
        """The measure that the problem asks to be least."""
        return self.span if self.problem.least == "span" else self.makespan

    @property
    def bubble(self) -> float:
        """The share of the longest span in which its rank waits, as Zero Bubble counts it."""
        return 1 - self.problem.time(self.problem.work) / self.span

    @property
    def bound(self) -> Least:
        return bound(self.problem)

    @property
    def least(self) -> float:
        """What nothing can take less than: the bound, or what was proven."""
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
        """The prices of the problem. A message travels beside computation; nothing else that is no product costs."""
        f, i, w, c = self.problem.ticks
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
    def schedule(self) -> Callable[[Model], Coroutine[Any, Any, None]]:
        """A coroutine for each rank that plays the order."""
        return pipeline(self.table, buffered=True)

    def trace(self) -> Trace:
        """A run of the schedule; not where an event loop is running: there, `run_async` runs `schedule`."""
        outcome = run(self.schedule, *self.size, setting=Setting(self.costs))
        if outcome.error is not None:
            raise outcome.error
        return outcome.trace

    def program(self) -> str:
        """A Python file with the schedule as a coroutine, and what it was made for."""
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


def solution(problem: Problem, table: Timetable, is_proven: bool = False) -> Solution:
    """A table with its figures, each cell as early as it can be."""
    f, i, w, c = problem.ticks
    length = {"F": f, "I": i, "W": w, "B": i}
    ends: dict[Cell, int] = {}
    clock, begun = [0] * problem.ranks, [-1] * problem.ranks
    rows = [[cell for slot in row for cell in slot] for row in table.rows]
    at = [0] * problem.ranks
    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(rows):
            while at[rank] < len(row):
                cell = row[at[rank]]
                needs = table.needs.of(cell)
                if not all(need in ends for need in needs):
                    break
                there = [ends[need] + c * (table.needs.rank_of[need] != rank) for need in needs]
                start = max(clock[rank], *there) if there else clock[rank]
                begun[rank] = start if begun[rank] < 0 else begun[rank]
                clock[rank] = ends[cell] = start + length[cell.op]
                at[rank] += 1
                moved = True
    time = problem.time
    held = tuple(_most_held(problem, row) for row in rows)
    return Solution(problem, table, tuple(map(time, begun)), tuple(map(time, clock)), held, is_proven)


def _most_held(problem: Problem, row: list[Cell]) -> float:
    m_b, m_w = problem.m_b, problem.m_w
    change = {"F": m_b, "I": m_w - m_b, "W": -m_w, "B": -m_b}
    held = most = 0.0
    for cell in row:
        held += change[cell.op]
        most = max(most, held)
    return round(most, 6)
