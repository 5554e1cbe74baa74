"""Lower bounds on a pipeline's time under a cap on memory: no schedule of the problem takes less."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from .problem import Problem


class Least(NamedTuple):
    """The least that is possible, in ticks, and why."""

    ticks: int
    reason: str


def bound(problem: Problem) -> Least:
    """The bound on what the problem asks to be short."""
    return span_bound(problem) if problem.least == "span" else makespan_bound(problem)


def span_bound(problem: Problem) -> Least:
    """The least that the longest span can be."""
    return max(one for rank in range(problem.ranks) for one in _spans(problem, rank))


def makespan_bound(problem: Problem) -> Least:
    """The least time from the start of the first operation to the end of the last."""
    f, i, w, _ = problem.ticks
    found = []
    for rank in range(problem.ranks):
        first = problem.stages_of(rank)[0]
        begin, home = _way(problem, 0, first, f), _way(problem, 0, first, i)
        for ticks, reason in _spans(problem, rank):
            after = home if problem.whole else 0
            more = "" if not rank else f"; rank {rank} begins {problem.time(begin):g} after rank 0"
            found.append(Least(begin + ticks + after, reason + more))
        busy = problem.v * problem.microbatches * (f + i)
        found.append(Least(begin + busy + home + w, f"all forwards and input halves of rank {rank}, and the way home"))
    return max(found)


def _way(problem: Problem, first: int, last: int, each: int) -> int:
    """From the start of one stage to the start of a later one (or back, from end to end)."""
    send = problem.ticks[3]
    return sum(each + send * (problem.rank_of(stage) != problem.rank_of(stage + 1)) for stage in range(first, last))


def turn(problem: Problem, stage: int) -> int:
    """From the end of a microbatch's forward in a stage to the start of its input half there, at least."""
    f, i, _, _ = problem.ticks
    last = problem.stages - 1
    return _way(problem, stage, last, f) + _way(problem, stage, last, i)


def _spans(problem: Problem, rank: int) -> Iterator[Least]:
    f, i, w, _ = problem.ticks
    m_b, m_w, cap = problem.weights
    mine = problem.stages_of(rank)
    pieces = problem.v * problem.microbatches
    room = min(cap // m_b, pieces) if m_b else pieces
    yield Least(f + turn(problem, mine[0]) + i + w, f"a microbatch goes from rank {rank} to the last stage and back")
    head = max(0, _way(problem, mine[0], mine[-1], f) + f + turn(problem, mine[-1]) - room * f)
    tail = ceil(max(Fraction(0), turn(problem, mine[-1]) - _work_in(problem, cap - m_b, pieces - 1)))
    idle = head + tail if pieces > room else max(head, tail)
    why = f"rank {rank} computes for {problem.time(problem.work):g}"
    if idle:
        why += f", and waits for {problem.time(idle):g} while it has room for {room} forwards"
    yield Least(problem.work + idle, why)
    area = problem.microbatches * sum(m_b * (f + turn(problem, stage) + i) + m_w * w for stage in mine)
    yield Least(
        -(-area // cap) if cap else 0, f"each microbatch is held on rank {rank} while it goes on and comes back"
    )


def _work_in(problem: Problem, room: int, pieces: int) -> Fraction:
    """The most work in the input and weight halves of what fits into some room."""
    _, i, w, _ = problem.ticks
    m_b, m_w, _ = problem.weights
    most = Fraction(pieces * (i + w))
    densities = [(i + w, m_b), *([] if problem.whole else [(w, m_w)])]
    work, held = max(densities, key=_density)
    return min(most, Fraction(room * work, held)) if held else most


def _density(pair: tuple[int, int]) -> Fraction:
    work, held = pair
    return Fraction(work, held) if held else Fraction(1 << 60)
