"""Lower bounds on a pipeline's time under a cap on memory: no schedule of the problem takes less."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import accumulate
from math import ceil
from typing import NamedTuple

from .problem import Problem


class LowerBound(NamedTuple):
    """A lower bound in ticks, and its reason."""

    ticks: int
    reason: str


def bound(problem: Problem) -> LowerBound:
    """The bound on the measure that the problem minimizes."""
    return span_bound(problem) if problem.least == "span" else makespan_bound(problem)


def span_bound(problem: Problem) -> LowerBound:
    """A lower bound on the longest span."""
    spans = [span for rank in range(problem.ranks) for span in _spans(problem, rank)]
    return max([*spans, *_around(problem)])


def makespan_bound(problem: Problem) -> LowerBound:
    """A lower bound on the time from the start of the first operation to the end of the last."""
    f, i, w, _ = problem.ticks
    bounds = []
    for rank in range(problem.ranks):
        stages = problem.stages_of(rank)
        first = stages[0]
        begin, home = _way(problem, 0, first, f[:first]), _way(problem, 0, first, i[:first])
        for ticks, reason in _spans(problem, rank):
            after = home if problem.whole else 0
            more = "" if not rank else f"; rank {rank} begins {problem.time(begin):g} after rank 0"
            bounds.append(LowerBound(begin + ticks + after, reason + more))
        busy = problem.microbatches * sum(f[stage] + i[stage] for stage in stages)
        bounds.append(
            LowerBound(begin + busy + home + w[0], f"all forwards and input halves of rank {rank}, and the way home")
        )
    return max(bounds)


def _around(problem: Problem) -> Iterator[LowerBound]:
    """A rank's span contains all forwards and input halves of later stages, and the messages there and back."""
    f, i, w, _ = problem.ticks
    m = problem.microbatches
    there = list(accumulate((_way(problem, s, s + 1, f[s : s + 1]) for s in range(problem.stages - 1)), initial=0))
    home = list(accumulate((_way(problem, s, s + 1, i[s : s + 1]) for s in range(problem.stages - 1)), initial=0))
    firsts = [problem.stages_of(rank)[0] for rank in range(problem.ranks)]
    for other, far in enumerate(firsts):
        busy = m * sum(f[stage] + i[stage] for stage in problem.stages_of(other))
        for rank, first in enumerate(firsts):
            if first < far:
                ticks = there[far] - there[first] + busy + home[far] - home[first] + w[first]
                yield LowerBound(ticks, f"rank {rank} waits for all forwards and input halves of rank {other}")


def _way(problem: Problem, first: int, last: int, passed: Sequence[int]) -> int:
    """The time from one stage to another or back: the messages, and the ticks of the stages in between."""
    hops = sum(problem.rank_of(stage) != problem.rank_of(stage + 1) for stage in range(first, last))
    return sum(passed) + hops * problem.ticks.c


def least_turnaround(problem: Problem, stage: int) -> int:
    """A lower bound on the time from the end of a microbatch's forward in a stage to the start of its input half
    there."""
    f, i, _, _ = problem.ticks
    last = problem.stages - 1
    return _way(problem, stage, last, f[stage + 1 :]) + _way(problem, stage, last, i[stage + 1 :])


def _spans(problem: Problem, rank: int) -> Iterator[LowerBound]:
    f, i, w, _ = problem.ticks
    m_b, m_w, cap = (*problem.sizes[:2], problem.sizes.cap[rank])
    stages, m = problem.stages_of(rank), problem.microbatches
    first, last = stages[0], stages[-1]
    work, back = problem.work(rank), least_turnaround(problem, last)
    yield LowerBound(
        f[first] + least_turnaround(problem, first) + i[first] + w[first],
        f"a microbatch goes from rank {rank} to the last stage and back",
    )
    pieces, smallest = len(stages) * m, min(m_b[stage] for stage in stages)
    room = min(cap // smallest, pieces) if smallest else pieces
    longest = sum(sorted((f[stage] for stage in stages for _ in range(min(m, room))), reverse=True)[:room])
    head = max(0, _way(problem, first, last, f[first : last + 1]) + back - longest)
    rest = m * sum(i[stage] + w[stage] for stage in stages) - i[last] - w[last]
    halves = [(i[stage] + w[stage], m_b[stage]) for stage in stages]
    halves += [] if problem.whole else [(w[stage], m_w[stage]) for stage in stages]
    densest = max(Fraction(ticks, size) if size else Fraction(1 << 60) for ticks, size in halves)
    tail = ceil(max(Fraction(0), back - min(Fraction(rest), (cap - m_b[last]) * densest)))
    idle = head + tail if pieces > room else max(head, tail)
    why = f"rank {rank} computes for {problem.time(work):g}"
    if idle:
        why += f", and waits for {problem.time(idle):g} while it has room for {room} forwards"
    yield LowerBound(work + idle, why)
    area = m * sum(
        m_b[stage] * (f[stage] + least_turnaround(problem, stage) + i[stage]) + m_w[stage] * w[stage]
        for stage in stages
    )
    yield LowerBound(-(-area // cap) if cap else 0, f"each microbatch is held on rank {rank} until it comes back")
