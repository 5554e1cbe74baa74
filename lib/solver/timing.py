"""The earliest start of every operation in an order: one pass over flat lists, a few thousand orders per second."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .problem import Problem

NEVER = 1 << 60
"""A gap that is never filled; a lag that is never reached."""

Rows = Sequence[Sequence[int]]
"""For each rank its forwards and input halves in order. The forward of microbatch b in stage s is s m + b, the input
half S m + s m + b, with S stages and m microbatches."""


class Step(NamedTuple):
    """One operation of a topological order: rank, stage, id, id of its dependency, message time, direction."""

    rank: int
    stage: int
    number: int
    needs: int
    lag: int
    is_forward: bool


def linked(problem: Problem, rows: Rows) -> list[Step] | None:
    """The operations of all ranks in a possible order; None if they wait for each other."""
    m, stages, send = problem.microbatches, problem.stages, problem.ticks.c
    half = stages * m
    rank_of = [problem.rank_of(stage) for stage in range(stages)]
    far = [send if stage and rank_of[stage] != rank_of[stage - 1] else 0 for stage in range(stages)] + [0]
    done = bytearray(2 * half + 1)
    done[-1] = 1  # what the first forwards wait for
    at = [0] * problem.ranks
    steps: list[Step] = []
    left = 2 * half
    sweep = [*range(problem.ranks), *reversed(range(problem.ranks))]
    while left:
        before = left
        for rank in sweep:
            row, n = rows[rank], at[rank]
            while n < len(row):
                number = row[n]
                if number < half:
                    stage = number // m
                    needs, lag, is_forward = (number - m if stage else -1), far[stage], True
                else:
                    stage = number // m - stages
                    last = stage == stages - 1
                    needs, lag, is_forward = (number - half if last else number + m), far[stage + 1], False
                    if not done[number - half]:
                        break
                if not done[needs]:
                    break
                done[number] = 1
                steps.append(Step(rank, stage, number, needs, lag, is_forward))
                n += 1
            left -= n - at[rank]
            at[rank] = n
        if left == before:
            return None
    return steps


@dataclass
class Policy:
    """When each rank computes weight halves, the oldest first: once more than `lag` are pending, or after its last
    forward more than `late`; before an operation for which it waits at least `gap` ticks; and where the next forward
    would not fit."""

    lag: list[int]
    late: list[int]
    gap: list[int]

    def copy(self) -> Policy:
        return Policy(self.lag[:], self.late[:], self.gap[:])


class Timed(NamedTuple):
    """The time of a schedule, in ticks. Less is better: first in the measure that the problem minimizes, then in the
    sum of all spans, then in the other measure."""

    least: int
    total: int
    other: int


def timed(problem: Problem, steps: Sequence[Step], policy: Policy, rows: list[list[int]] | None = None) -> Timed | None:
    """The figures of an order with weight halves placed by a policy; None if it does not fit into memory. Adds what
    each rank computes to `rows`, with a weight half as -1."""
    f, i, w, _ = problem.ticks
    m_b, m_w, caps = problem.sizes
    ranks, m, v = problem.ranks, problem.microbatches, problem.v
    ends = [0] * (2 * problem.stages * m + 1)
    clock, starts = [0] * ranks, [-1] * ranks
    held, ahead = [0] * ranks, [m * v] * ranks
    pending: list[deque[int]] = [deque() for _ in range(ranks)]
    lags, late, gaps = policy.lag[:], policy.late, policy.gap
    halves = not problem.whole
    grows = [max(0, size - before) if halves else 0 for size, before in zip(m_w, m_b)]
    for rank, stage, number, needs, lag, is_forward in steps:
        now, waiting = clock[rank], pending[rank]
        ready = ends[needs] + lag
        room = caps[rank] - (m_b[stage] if is_forward else grows[stage])
        while held[rank] > room or (ready > now and waiting and ready - now >= gaps[rank]):
            if not waiting:
                return None
            done = waiting.popleft()
            held[rank] -= m_w[done]
            now += w[done]
            if rows is not None:
                rows[rank].append(-1)
        if ready > now:
            now = ready
        if rows is not None:
            rows[rank].append(number)
        if is_forward:
            if starts[rank] < 0:
                starts[rank] = now
            now += f[stage]
            ends[number] = now
            held[rank] += m_b[stage]
            ahead[rank] -= 1
            if not ahead[rank]:
                lags[rank] = late[rank]
        else:
            now += i[stage]
            ends[number] = now
            if halves:
                held[rank] += m_w[stage] - m_b[stage]
                waiting.append(stage)
                while len(waiting) > lags[rank]:
                    done = waiting.popleft()
                    held[rank] -= m_w[done]
                    now += w[done]
                    if rows is not None:
                        rows[rank].append(-1)
            else:
                held[rank] -= m_b[stage]
        clock[rank] = now
    for rank in range(ranks):
        clock[rank] += sum(w[stage] for stage in pending[rank])
        if rows is not None:
            rows[rank] += [-1] * len(pending[rank])
    spans = [end - start for end, start in zip(clock, starts)]
    span, makespan = max(spans), max(clock)
    if problem.least == "span":
        return Timed(span, sum(spans), makespan)
    return Timed(makespan, sum(spans), span)
