"""Hill climbing over schedules with constant lags: each stage works on microbatch j a fixed time after microbatch 0.

The search starts from the published orders, and is never worse than any that fits. A candidate is timed in one pass
over flat lists, which is quick enough for a few thousand orders per second.

A schedule is a shape, which orders forwards and input halves, and a policy, which places weight halves. Both have a few
numbers for each rank, however many microbatches there are. A greedy search as another start found the same, but for a
few problems, by up to 1.5 %; so it was given up.

The effort is counted in timed operations, not in seconds, and the random numbers have a fixed seed: a problem has the
same schedule in every run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from heapq import merge
from itertools import accumulate
from math import inf
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from lib import PuzzleError
from lib.pipelines import orders as textbook
from lib.pipelines.orders import Slots, StageCosts, settled, v_half_slots, v_min_slots
from lib.pipelines.timetable import Cell, Timetable

from .problem import Problem, bound, least_turnaround

# --- The earliest start of every operation in an order ---

NEVER = 1 << 60
"""A gap that is never filled; a lag that is never reached."""

Rows = Sequence[Sequence[int]]
"""For each rank its forwards and input halves in order. The forward of microbatch b in stage s is s m + b, the input
half S m + s m + b, with S stages and m microbatches."""


class Step(NamedTuple):
    """One operation of a topological order: rank, stage, id, id of its dependency, time of the message that it sends,
    direction."""

    rank: int
    stage: int
    number: int
    needs: int
    sends: int
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
                    needs, sends, is_forward = (number - m if stage else -1), far[stage + 1], True
                else:
                    stage = number // m - stages
                    last = stage == stages - 1
                    needs, sends, is_forward = (number - half if last else number + m), far[stage], False
                    if not done[number - half]:
                        break
                if not done[needs]:
                    break
                done[number] = 1
                steps.append(Step(rank, stage, number, needs, sends, is_forward))
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
    each rank computes to `rows`, with a weight half as -1. A rank sends one message after the other, as on a lane of
    the ledger."""
    f, i, w, _ = problem.ticks
    m_b, m_w, caps = problem.sizes
    ranks, m, v = problem.ranks, problem.microbatches, problem.v
    arrived = [0] * (2 * problem.stages * m + 1)
    clock, starts, lanes = [0] * ranks, [-1] * ranks, [0] * ranks
    held, ahead = [0] * ranks, [m * v] * ranks
    pending: list[deque[int]] = [deque() for _ in range(ranks)]
    lags, late, gaps = policy.lag[:], policy.late, policy.gap
    halves = not problem.whole
    grows = [max(0, size - before) if halves else 0 for size, before in zip(m_w, m_b)]
    for rank, stage, number, needs, sends, is_forward in steps:
        now, waiting = clock[rank], pending[rank]
        ready = arrived[needs]
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
            made = now
            held[rank] += m_b[stage]
            ahead[rank] -= 1
            if not ahead[rank]:
                lags[rank] = late[rank]
        else:
            now += i[stage]
            made = now
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
        if sends:
            if lanes[rank] > made:
                made = lanes[rank]
            lanes[rank] = made = made + sends
        arrived[number] = made
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


# --- The published orders ---

CellRows = list[list[Cell]]
Order = Callable[[Problem], CellRows | None]

PATTERN = "pattern"
"""The prefix of the name of a settled pattern."""

IN_TURN = (0, 1, 2, inf)
"""How many forwards are left when weight halves begin to give way; with infinity they always do."""


def _sized(order: Callable[..., Timetable], problem: Problem) -> CellRows | None:
    m, p, v = problem.microbatches, problem.ranks, problem.v
    try:
        table = order(p, m, *([v] if problem.placement == "looped" else []))
    except PuzzleError:  # some take a multiple of the ranks
        return None
    return [list(_halved(row, problem.whole)) for row in table.rows]


def _halved(row: tuple[tuple[Cell, ...], ...], whole: bool) -> Iterator[Cell]:
    """Cells with backwards in one piece or in halves, as the problem requires."""
    names = {"F": "F", "B": "B", "I": "B", "W": ""} if whole else {"F": "F", "B": "IW", "I": "I", "W": "W"}
    for cell in (cell for slot in row for cell in slot):
        yield from (cell._replace(op=op) for op in names[cell.op])


def _pattern(slots: Callable[[int], list[Slots]], in_turn: float, unit: bool, problem: Problem) -> CellRows | None:
    """V-Min or V-Half, settled under the problem's cap with its times or with equal times."""
    f, i, w, c = problem.ticks
    ones, sizes = [1] * problem.stages, problem.sizes
    if not unit and c == 0 and len({*f, *i, *w}) == 1:
        return None
    costs = StageCosts(ones, ones, ones, 0, *sizes) if unit else StageCosts(f, i, w, c, *sizes)
    return settled(slots(problem.ranks), problem.microbatches, costs, in_turn)


def _fewer_in_flight(problem: Problem) -> CellRows | None:
    """1F1B with as few warm-up forwards as the caps ask for; None if they ask for no fewer than 1F1B has. A rank has no
    more of them than the rank before it, whose backwards it would wait for."""
    p, m_b, _, caps = problem.ranks, *problem.sizes
    most = list(accumulate((cap // held if held else p for cap, held in zip(caps, m_b, strict=True)), min))
    if all(limit >= p - rank for rank, limit in enumerate(most)):
        return None
    rows: CellRows = []
    for rank, limit in enumerate(most):
        warmup = max(1, min(limit, p - rank))
        row = [Cell(rank, "F", batch) for batch in range(min(warmup, problem.microbatches))]
        for batch in range(problem.microbatches):
            row += [Cell(rank, op, batch) for op in ("B" if problem.whole else "IW")]
            row += [Cell(rank, "F", batch + warmup)] * (batch + warmup < problem.microbatches)
        rows.append(row)
    return rows


@lru_cache(maxsize=64)
def orders(placement: str, whole: bool) -> Mapping[str, Order]:
    """The orders with a placement, by name."""
    books: list[Callable[..., Timetable]]
    match placement:
        case "contiguous":
            books = [textbook.one_f_one_b, textbook.gpipe, *([] if whole else [textbook.zb_h1, textbook.zb_h2])]
        case "looped":
            books = [textbook.interleaved, textbook.breadth_first, *([] if whole else [textbook.interleaved_zb])]
        case _:
            books = [textbook.zb_v, textbook.dualpipev]
    by_name: dict[str, Order] = {book.__name__: partial(_sized, book) for book in books}
    if placement == "contiguous":
        by_name["one_f_one_b with fewer in flight"] = _fewer_in_flight
    if placement == "V" and not whole:
        by_name |= {book.__name__: partial(_sized, book) for book in (textbook.v_min, textbook.v_half)}
        for in_turn in IN_TURN:
            for unit in (True, False):
                for slots in (v_min_slots, v_half_slots):
                    by_name[f"{PATTERN} {slots.__name__} {in_turn} {unit}"] = partial(_pattern, slots, in_turn, unit)
    return MappingProxyType(by_name)


@lru_cache(maxsize=128)
def cells(problem: Problem, name: str) -> CellRows | None:
    """An order at the problem's size; None if it does not exist at that size, or does not fit."""
    return orders(problem.placement, problem.whole)[name](problem)


def ordered(problem: Problem, name: str) -> list[list[int]] | None:
    """The forwards and input halves of an order, numbered as in `timing`."""
    rows, m = cells(problem, name), problem.microbatches
    if rows is None:
        return None
    half = problem.stages * m
    return [
        [(half if cell.op != "F" else 0) + cell.stage * m + cell.batch for cell in row if cell.op != "W"]
        for row in rows
    ]


# --- The search ---


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
