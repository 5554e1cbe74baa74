"""Hill climbing over schedules with constant lags: each stage works on microbatch j a fixed time after microbatch 0."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from random import Random

from .bounds import bound, least_turnaround
from .problem import Problem
from .textbook import ordered, orders
from .timing import NEVER, Policy, Step, Timed, linked, timed


@dataclass
class Shape:
    """When each stage works on microbatch 0, forward and back, in microbatches; microbatch j comes j later.
    Microbatches go through each chunk in groups of `group`."""

    forward: list[float]
    back: list[float]
    group: int = 1

    def copy(self) -> Shape:
        return Shape(self.forward[:], self.back[:], self.group)


def rows_of(problem: Problem, shape: Shape) -> list[list[int]]:
    """The order of each rank by the times of the shape. A forward for which there is no room waits for a backward."""
    m, stages, group, v = problem.microbatches, problem.stages, shape.group, problem.v
    half = stages * m
    begin = [j - j % group + j % group / v for j in range(m)] if group > 1 else [*range(m)]
    m_b, _, caps = problem.sizes
    rows = []
    for rank in range(problem.ranks):
        chunks = problem.stages_of(rank)
        largest = max(m_b[stage] for stage in chunks)
        room = caps[rank] // largest if largest else half
        forwards = merge(*([(shape.forward[s] + begin[j], s * m + j) for j in range(m)] for s in chunks))
        backs = [*merge(*([(shape.back[s] + begin[j], half + s * m + j) for j in range(m)] for s in chunks))]
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
    """Shapes from which a search may begin."""
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
    """A microbatch goes from stage to stage, in each leg (a chunk of all ranks, forth or back) in so many times the
    minimum time."""
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
    """Policies for weight halves with which a search may begin."""
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


EFFORT = 20_000_000
"""The most operations that are timed in all; a second has three to five million of them."""

TRIALS = 12_000
"""The most schedules that are tried in all."""

SHORT = 3
"""Microbatches per rank in the first trials."""

PATIENCE = 1500
"""The search gives up after so many trials in a row without an improvement."""

CLIMBS = 4
"""The number of starts from which it climbs."""


@dataclass
class Candidate:
    """A schedule: an order of forwards and input halves, from a shape or a published order, and a policy for weight
    halves."""

    steps: Sequence[Step]
    policy: Policy
    figures: Timed
    shape: Shape | str


class Search:
    """The best schedule found for a problem. It is the same in every run."""

    def __init__(self, problem: Problem, effort: int, trials: int) -> None:
        self.problem, self.effort, self.trials = problem, effort, trials
        self.random = Random(problem.ranks * 1009 + problem.microbatches)
        self.least = bound(problem).ticks
        self.many = problem.v * problem.microbatches

    def timed(self, steps: Sequence[Step], policy: Policy, shape: Shape | str) -> Candidate | None:
        self.effort -= len(steps)
        self.trials -= 1
        figures = timed(self.problem, steps, policy)
        return None if figures is None else Candidate(steps, policy, figures, shape)

    def steps(self, shape: Shape | str) -> list[Step] | None:
        """The order that a shape gives; None if it cannot be played."""
        problem = self.problem
        timings = 3 if isinstance(shape, Shape) else 20  # that take as long
        self.effort -= timings * 2 * problem.stages * problem.microbatches
        rows = rows_of(problem, shape) if isinstance(shape, Shape) else ordered(problem, shape)
        return None if rows is None else linked(problem, rows)

    def shaped(self, shape: Shape | str, *some: Policy) -> Candidate | None:
        """The best candidate of a shape with one of some policies."""
        steps = self.steps(shape)
        candidates = [
            candidate for policy in some if steps is not None and (candidate := self.timed(steps, policy, shape))
        ]
        return min(candidates, key=lambda candidate: candidate.figures, default=None)

    def starts(self) -> list[Candidate]:
        """Starts of several kinds, the best first."""
        candidates = [
            candidate for shape in self.shapes() if (candidate := self.shaped(shape, *policies(self.problem)))
        ]
        return sorted(candidates, key=lambda candidate: candidate.figures)

    def shapes(self) -> Iterator[Shape | str]:
        yield from shapes(self.problem)
        yield from orders(self.problem.placement, self.problem.whole)
        if self.problem.placement == "contiguous":
            return
        period, enough = self.problem.period, self.effort // 2
        for _ in range(40):
            if self.effort < enough:  # the rest is for climbing
                return
            stretch = [self.random.uniform(1, 3) for _ in range(2 * self.problem.v)]
            yield travelling(self.problem, stretch, period * self.random.uniform(0.9, 1.2))

    def climbed(self, best: Candidate, share: float = 1.0) -> Candidate:
        """The best candidate after small changes, each kept if it is no worse, with a share of the remaining effort."""
        trials, effort, stalled = self.trials * (1 - share), self.effort * (1 - share), 0
        while min(self.trials - trials, self.effort - effort) > 0 and stalled < PATIENCE:
            if best.figures.least <= self.least:
                break
            candidate, stalled = self.changed(best), stalled + 1
            if candidate is not None and candidate.figures <= best.figures:
                stalled = stalled if candidate.figures == best.figures else 0
                best = candidate
        return best

    def changed(self, candidate: Candidate) -> Candidate | None:
        dice = self.random.random()
        if isinstance(candidate.shape, Shape) and (dice < 0.3 or self.problem.whole):
            return self.shaped(self.shifted(candidate.shape), candidate.policy)
        policy = candidate.policy.copy()
        which = policy.lag if dice < 0.65 else policy.late if dice < 0.8 else policy.gap
        some = self.some(self.problem.ranks)
        if which is policy.gap:
            w = self.problem.typical[2]
            gap = self.random.choice((NEVER, w, w * 3 // 4, w // 2, w // 4, 1))
            for rank in some:
                which[rank] = max(gap, 1)
        else:
            by = self.random.choice((-3, -2, -1, -1, 1, 1, 2, 3))
            for rank in some:
                which[rank] = min(max(which[rank] + by, 0), self.many)
        return self.timed(candidate.steps, policy, candidate.shape)

    def some(self, count: int) -> range:
        """One of so many ranks or stages, all from one on, all up to one, or some between two."""
        a, b = sorted((self.random.randrange(count), self.random.randrange(count)))
        return self.random.choice((range(a, a + 1), range(a, count), range(b + 1), range(a, b + 1)))

    def shifted(self, shape: Shape) -> Shape:
        """A shape in which some ranks are ahead or behind."""
        new = shape.copy()
        if self.problem.placement == "contiguous":
            by = self.random.choice((-2, -1, -1, 1, 1, 2))
            for rank in self.some(self.problem.ranks):
                new.back[rank] = max(new.back[rank] + by, 0.5)
            for rank in range(self.problem.ranks - 2, -1, -1):  # a rank is not ahead of those before it
                new.back[rank] = max(new.back[rank], new.back[rank + 1])
            return new
        lags = new.forward if self.random.random() < 0.5 else new.back
        some = self.some(self.problem.stages)
        shift = self.random.choice((-1, 1)) * self.random.choice((1.0, 0.5, 0.25, 0.1)) / self.problem.v
        for stage in some:
            lags[stage] += shift
        return new


def shortened(problem: Problem) -> Problem:
    """The problem with few microbatches."""
    return replace(problem, microbatches=min(problem.microbatches, SHORT * problem.ranks))


def best(problem: Problem, effort: int = EFFORT, trials: int = TRIALS) -> Candidate | None:
    """The best schedule found, if any."""
    few = shortened(problem)
    climbed: list[Candidate] = []
    if few != problem:
        search = Search(few, effort * 2 // 3, trials * 2 // 3)
        climbed = climbs(search)
        effort, trials = effort - effort * 2 // 3, trials - trials * 2 // 3
    search = Search(problem, effort, trials)
    if not climbed:
        climbed = climbs(search)
        return climbed[0] if climbed else None
    carried = [candidate for short in climbed if (candidate := search.shaped(short.shape, short.policy))]
    carried.sort(key=lambda candidate: candidate.figures)
    return search.climbed(carried[0]) if carried else None


def climbs(search: Search) -> list[Candidate]:
    """Climbs from each of the best starts, and then from the best results; the best first."""
    starts = search.starts()[:CLIMBS]
    climbed = [search.climbed(start, share=1 / (2 * CLIMBS)) for start in starts]
    climbed.sort(key=lambda candidate: candidate.figures)
    return [search.climbed(climbed[0]), *climbed[1:]] if climbed else []
