"""What to schedule: a pipeline's size and times, the placement of its stages, and the memory of a rank; and lower
bounds on its time, which no schedule of the problem beats.

Times become whole ticks, and sizes whole numbers of one unit, so that search, proof and bounds compare exact numbers.
A time with more than three decimals is refused, because costs cannot have it.

The bounds are for one step of one placement under a cap on memory. `lib.pipelines.bounds` has the bounds of whole
games. How a schedule is found is decided by `search`, and whether it is proven by `solving`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial
from itertools import accumulate
from math import ceil, gcd, lcm
from numbers import Real
from typing import Any, NamedTuple

from lib.errors import RuleError
from lib.ledger.costs import MAX_TICKS_PER_STEP

PLACEMENTS = ("contiguous", "looped", "V")
"""One stage on each rank; stages dealt in turn, `chunks` to a rank; two on each rank, dealt forth and back."""

MEASURES = ("span", "makespan")
"""The longest time from a rank's first start to its last end, which matters if steps follow each other without a
barrier; and the time from the very first start to the very last end, for a single step."""

MAX_CELLS = 200_000
"""Forwards of all stages and microbatches together."""

MAX_TIME = 10_000

Figure = float | Sequence[float]
"""A number for all stages or ranks, or a list with a number for each."""


class Ticks(NamedTuple):
    """Times in ticks: F, I and W by stage, and a message. Of a full backward, I is all and W is 0."""

    f: tuple[int, ...]
    i: tuple[int, ...]
    w: tuple[int, ...]
    c: int


class Sizes(NamedTuple):
    """Memory in whole numbers of one unit: `m_b` and `m_w` by stage, and the cap by rank."""

    m_b: tuple[int, ...]
    m_w: tuple[int, ...]
    cap: tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """A training step of a pipeline.

    `forward`, `backward_input` and `backward_weight` are the times of one microbatch in one stage: a number for all
    stages, or a list with a number for each. `send` is the time of a message to another rank, which overlaps with
    computation; a rank sends one message after the other. All are in one unit, with up to three decimals. With `whole`
    the two halves of a backward follow each other as one operation.

    No rank may hold more than `memory`, a number or a list by rank: a microbatch in a stage counts `m_b` from its
    forward to the input half of its backward, then `m_w` until its weight half ends (Qi et al. 2024, section 2.3); each
    is a number or a list by stage. A rank has `chunks` stages, 2 in a V. `least` says what to minimize: the longest
    "span" of a rank, or the "makespan". A list of equal numbers is stored as the number.

    Raises:
        RuleError: naming what cannot be, and what would fit.
    """

    ranks: int
    microbatches: int
    forward: Figure = 1.0
    backward_input: Figure = 1.0
    backward_weight: Figure = 1.0
    send: float = 0.0
    memory: Figure | None = None
    placement: str = "contiguous"
    chunks: int | None = None
    m_b: Figure = 1.0
    m_w: Figure = 1.0
    whole: bool = False
    least: str = "span"
    unit: int = field(init=False, compare=False)
    """Ticks in a unit of time."""

    def __post_init__(self) -> None:
        if self.least not in MEASURES:
            raise RuleError(f"the measure to minimize is one of {', '.join(MEASURES)}; got {self.least!r:.40}")
        if type(self.whole) is not bool:
            raise RuleError(f"whole is True or False; got {self.whole!r:.40}")
        if self.placement not in PLACEMENTS:
            raise RuleError(f"the placement is one of {', '.join(PLACEMENTS)}; got {self.placement!r:.40}")
        if self.chunks is None:
            object.__setattr__(self, "chunks", 1 if self.placement == "contiguous" else 2)
        for name in ("ranks", "microbatches", "chunks"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise RuleError(f"{name} must be a whole number from 1 on; got {getattr(self, name)!r:.40}")
        fixed = {"contiguous": 1, "V": 2}.get(self.placement, self.chunks)
        if self.chunks != fixed:
            advice = "; for more, take the placement looped" if self.placement == "contiguous" else ""
            raise RuleError(f"the placement {self.placement} has {fixed} chunks a rank, got {self.chunks}{advice}")
        if self.stages * self.microbatches > MAX_CELLS:
            raise RuleError(
                f"{self.stages} stages of {self.microbatches:,} microbatches are {self.stages * self.microbatches:,} "
                f"forwards, and at most {MAX_CELLS:,} are possible; take up to {MAX_CELLS // self.stages:,} "
                "microbatches"
            )
        for name, least in (("forward", 1), ("backward_input", 1), ("backward_weight", 0)):
            self._listed(name, "stages", partial(_time, least))
        object.__setattr__(self, "send", _time(0, "send", self.send))
        for name in ("m_b", "m_w"):
            self._listed(name, "stages", _size)
        if self.memory is not None:
            self._listed("memory", "ranks", _size)
            self._require_room()
        times = [*self.by_stage("forward"), *self.by_stage("backward_input"), *self.by_stage("backward_weight")]
        exact = {_exact(time) for time in [*times, self.send]}
        unit = next(unit for unit in (1, 10, 100, MAX_TICKS_PER_STEP) if all(time * unit % 1 == 0 for time in exact))
        object.__setattr__(self, "unit", unit)

    def _listed(self, name: str, of: str, checked: Callable[[str, Any], float]) -> None:
        """Checks a number or a list of them, and stores a list of equal numbers as the number."""
        value, count = getattr(self, name), getattr(self, of)
        shown = name.replace("_", "-") if of == "stages" and len(name) > 3 else name
        if isinstance(value, (list, tuple)):
            if len(value) != count:
                raise RuleError(
                    f"{shown} must be a number or a list of {count}, one for each of the {of}; got {len(value)} numbers"
                )
            numbers = tuple(checked(f"{shown} of {of[:-1]} {place}", number) for place, number in enumerate(value))
            object.__setattr__(self, name, numbers[0] if len(set(numbers)) == 1 else numbers)
        else:
            object.__setattr__(self, name, checked(shown, value))

    def by_stage(self, name: str) -> tuple[float, ...]:
        value = getattr(self, name)
        return value if isinstance(value, tuple) else (value,) * self.stages

    def _require_room(self) -> None:
        for rank, memory in enumerate(self.caps):
            least = self.least_memory(rank)
            if memory < least:
                where = f" on rank {rank}" if isinstance(self.memory, tuple) or not self.is_even else ""
                advice = f"memory={max(map(self.least_memory, range(self.ranks))):g} or more"
                if isinstance(self.memory, tuple):
                    advice = f"{least:g} or more for rank {rank}"
                raise RuleError(
                    f"nothing fits into a memory of {memory:g}{where}: while a rank trains one microbatch it holds "
                    f"{least:g}; take {advice}"
                )

    @property
    def caps(self) -> tuple[float, ...]:
        """By rank, what it may hold."""
        memory = float("inf") if self.memory is None else self.memory
        return memory if isinstance(memory, tuple) else (memory,) * self.ranks  # type: ignore[return-value]

    def fits(self, peaks: Sequence[float]) -> bool:
        """True if each rank may hold so much."""
        return all(peak <= cap + 1e-9 for peak, cap in zip(peaks, self.caps))

    @property
    def is_even(self) -> bool:
        """True if all stages have the same times and sizes."""
        figures = (self.forward, self.backward_input, self.backward_weight, self.m_b, self.m_w)
        return not any(isinstance(figure, tuple) for figure in figures)

    @cached_property
    def ticks(self) -> Ticks:
        f, i, w = (
            tuple(int(_exact(time) * self.unit) for time in self.by_stage(name))
            for name in ("forward", "backward_input", "backward_weight")
        )
        if self.whole:
            i, w = tuple(map(sum, zip(i, w))), (0,) * self.stages
        return Ticks(f, i, w, int(_exact(self.send) * self.unit))

    @cached_property
    def typical(self) -> tuple[int, int, int, int]:
        """F, I, W and a message in ticks, in the mean of all stages."""
        f, i, w = (round(Fraction(sum(ticks), self.stages)) for ticks in self.ticks[:3])
        return f, i, w, self.ticks.c

    def work(self, rank: int) -> int:
        """Ticks of all computing of a rank."""
        return self.microbatches * sum(ticks[stage] for ticks in self.ticks[:3] for stage in self.stages_of(rank))

    @cached_property
    def period(self) -> int:
        """Ticks of one microbatch on the rank that computes longest."""
        return max(map(self.work, range(self.ranks))) // self.microbatches

    @property
    def v(self) -> int:
        assert self.chunks is not None
        return self.chunks

    @property
    def stages(self) -> int:
        return self.ranks * self.v

    def rank_of(self, stage: int) -> int:
        """The rank that a stage is on."""
        lap, place = divmod(stage, self.ranks)
        return self.ranks - 1 - place if self.placement == "V" and lap else place

    def stages_of(self, rank: int) -> list[int]:
        """The stages of a rank, ascending."""
        return [stage for stage in range(self.stages) if self.rank_of(stage) == rank]

    def least_memory(self, rank: int) -> float:
        """What a rank holds at least: a microbatch is in all its stages when it turns back, and each computes its
        weight half while those before it still wait."""
        m_b, m_w = self.by_stage("m_b"), self.by_stage("m_w")
        kept = least = 0.0
        for stage in self.stages_of(rank):
            least = max(least, kept if self.whole else kept + m_w[stage], kept := kept + m_b[stage])
        return least

    @cached_property
    def sizes(self) -> Sizes:
        """Without a cap all microbatches fit."""
        m_b = [*map(_exact, self.by_stage("m_b"))]
        m_w = [Fraction(0) if self.whole else _exact(size) for size in self.by_stage("m_w")]
        if self.memory is None:
            most = [self.microbatches * sum(max(m_b[s], m_w[s]) for s in self.stages_of(r)) for r in range(self.ranks)]
        else:
            most = [*map(_exact, self.caps)]
        scale = lcm(*(size.denominator for size in m_b + m_w + most))
        by = gcd(*(int(size * scale) for size in m_b + m_w + most)) or 1
        return Sizes(*(tuple(int(size * scale) // by for size in sizes) for sizes in (m_b, m_w, most)))

    def time(self, ticks: int) -> float:
        """Ticks in the unit of the times that were given."""
        return ticks / self.unit


def is_number(value: Any) -> bool:
    """True for a number of a size that people mean."""
    number: Any = value if isinstance(value, Real) and not isinstance(value, bool) else float("nan")
    return bool(-1e9 < number < 1e9)


def _exact(value: float) -> Fraction:
    """The decimal that a float is written as."""
    return Fraction(repr(value)) if isinstance(value, float) else Fraction(value)


def _size(name: str, value: Any) -> float:
    if not is_number(value) or value < 0:
        raise RuleError(f"{name} must be a number from 0 on; got {value!r:.40}")
    return float(value)


def _time(least: int, shown: str, value: Any) -> float:
    if not is_number(value) or not least / MAX_TICKS_PER_STEP <= value <= MAX_TIME:
        raise RuleError(
            f"{shown} must be a time from {least / MAX_TICKS_PER_STEP:g} to {MAX_TIME:,}; got {value!r:.40}"
        )
    if _exact(value) * MAX_TICKS_PER_STEP % 1:
        raise RuleError(f"{shown} has at most three decimals, as {round(float(value), 3):g}; got {value!r:.40}")
    return float(value)


# --- Lower bounds on the time under a cap on memory ---


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
