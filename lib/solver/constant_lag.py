"""Schedules with constant lags: each stage works on microbatch j a fixed time after microbatch 0."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge

from .bounds import least_turnaround
from .problem import Problem
from .timing import NEVER, Policy


@dataclass
class Shape:
    """When each stage works on microbatch 0, forward and back, in microbatches: microbatch j comes j later. They go
    through each chunk in groups of `group`."""

    forward: list[float]
    back: list[float]
    group: int = 1

    def copy(self) -> Shape:
        return Shape(self.forward[:], self.back[:], self.group)


def rows_of(problem: Problem, shape: Shape) -> list[list[int]]:
    """The order of each rank by the time that the shape gives; a forward for which there is no room waits until a
    backward has been."""
    m, stages, group, v = problem.microbatches, problem.stages, shape.group, problem.v
    half = stages * m
    begin = [j - j % group + j % group / v for j in range(m)] if group > 1 else [*range(m)]
    m_b, _, caps = problem.sizes
    rows = []
    for rank in range(problem.ranks):
        mine = problem.stages_of(rank)
        largest = max(m_b[stage] for stage in mine)
        room = caps[rank] // largest if largest else half
        forwards = merge(*([(shape.forward[s] + begin[j], s * m + j) for j in range(m)] for s in mine))
        backs = [*merge(*([(shape.back[s] + begin[j], half + s * m + j) for j in range(m)] for s in mine))]
        row: list[int] = []
        at = 0
        for n, (time, number) in enumerate(forwards):
            while at < n and (backs[at][0] < time or n - at >= room):
                row.append(backs[at][1])
                at += 1
            row.append(number)
        row += [number for _, number in backs[at:]]
        rows.append(row)
    return rows


def warm_up(problem: Problem, ahead: list[int]) -> Shape:
    """The shape in which rank r, with one stage, does `ahead[r]` forwards, then a forward and a backward in turn."""
    return Shape([0.0] * problem.ranks, [count + 0.5 for count in ahead])


def shapes(problem: Problem) -> Iterator[Shape]:
    """Where a search may begin."""
    if problem.placement == "contiguous":
        f, i, _, c = problem.typical
        behind = [problem.ranks - 1 - rank for rank in range(problem.ranks)]
        for slope in (1.0, 2.0, (f + i + 2 * c) / f):
            for more in (0.0, 0.5, 0.99):
                yield warm_up(problem, [int(slope * n + more) for n in behind])
        return
    f_and_i, period = problem.ticks.f[0] + problem.ticks.i[0], problem.period
    for turns in (1, 2, 3, 4, 6, 8):  # so many microbatches in flight
        if turns == 1 or turns < problem.ranks * problem.v:
            yield travelling(problem, [1.0] * (2 * problem.v), (least_turnaround(problem, 0) + f_and_i) * 1.01 / turns)
    groups = (1, problem.ranks) if problem.placement == "looped" and problem.ranks > 1 else (1,)
    for group in groups:
        for stretch in STRETCHES:
            yield travelling(problem, [stretch] * (2 * problem.v), period, group)


STRETCHES = (1.0, 1.25, 1.5, 2.0, 3.0)


def travelling(problem: Problem, stretch: list[float], period: float, group: int = 1) -> Shape:
    """A microbatch goes from stage to stage, in each leg (a chunk of all ranks, there or back) so many times as long as
    it must take."""
    f, i, _, c = problem.ticks
    p, stages, v = problem.ranks, problem.stages, problem.v
    forward, back = [0.0] * stages, [0.0] * stages
    now = 0.0
    for stage in range(stages):
        if group > 1 and stage % p == 0:
            now = max(now, stage // p * group / v * period)
        forward[stage] = now / period
        now += stretch[stage // p] * (f[stage] + c)
    for n, stage in enumerate(reversed(range(stages))):
        if group > 1 and n % p == 0 and n:
            now = max(now, (back[stages - 1] + n // p * group / v) * period)
        back[stage] = now / period
        now += stretch[v + n // p] * (i[stage] + c)
    return Shape(forward, back, group)


def policies(problem: Problem) -> Iterator[Policy]:
    """How a search may begin to place weight halves."""
    f, i, w, c = problem.typical
    p = problem.ranks
    many = problem.v * problem.microbatches
    if problem.whole:
        yield Policy([0] * p, [0] * p, [NEVER] * p)
        return
    for slope in (0.0, 1.0, 2.0, (f + i + 2 * c) / w if w else 0.0, float(many)):
        lag = [min(int(slope * rank + 0.5 * (slope > 2)), many) for rank in range(p)]
        for late in (lag, [many] * p):
            for gap in (NEVER, max(w, 1), max(w // 2, 1)):
                yield Policy(lag[:], late[:], [gap] * p)
