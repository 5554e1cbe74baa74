"""Where the time of a step went: computing, waiting, messages, the host, and the time before and after a rank's cells.

A rank is free from the end of its previous slot, and its inputs are ready when other ranks have made the last of them.
Until then it waits for that rank; the rest is the message. If the inputs were ready first, the program (the host) was
late. The shares add up to the ranks times the step. Findings name oddities: a slow rank, a late host.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean, median
from types import MappingProxyType
from typing import NamedTuple

from lib.schedules import Cell

from .gathered import PipelineStep
from .replay import makespan, replayed
from .sources import Span


class Idle(NamedTuple):
    """The time before a slot, in ms. If inputs came late, the rank waits for rank `source`."""

    rank: int
    at: int
    waiting: float
    message: float
    host: float
    source: int | None


class RankShares(NamedTuple):
    """One rank's step, in ms; `gaps` is the part of computing in which no kernel ran."""

    computing: float
    warm_up: float
    waiting: float
    message: float
    host: float
    cool_down: float
    gaps: float


@dataclass(frozen=True)
class Accounting:
    """The shares of a step's ranks."""

    step: PipelineStep
    idle: tuple[Idle, ...]
    ranks: tuple[RankShares, ...]

    @property
    def computing(self) -> float:
        """The mean computing time of all ranks, in ms."""
        return sum(shares.computing for shares in self.ranks) / len(self.ranks)

    @property
    def bubble(self) -> float:
        """The share of the step in which ranks do not compute (Zero Bubble's rate)."""
        return 1 - self.computing / self.step.length

    @property
    def of_ideal(self) -> float:
        """The bubble relative to the computing of a rank (Megatron-LM's rate, (p - 1) / m for 1F1B)."""
        return self.step.length / self.computing - 1

    @cached_property
    def message(self) -> float:
        """The median time of a message that was waited for."""
        return max(0.0, median([idle.message for idle in self.idle if idle.source is not None] or [0.0]))

    @cached_property
    def waited_for(self) -> dict[int, float]:
        """How long others waited for each rank in all, after their warm-up."""
        waited: dict[int, float] = defaultdict(float)
        for idle in self.idle:
            if idle.source is not None and idle.at and idle.waiting > 0:
                waited[idle.source] += idle.waiting
        return dict(waited)

    @cached_property
    def host(self) -> dict[tuple[int, int], float]:
        """By rank and index of a slot, the host's time before it."""
        return {(idle.rank, idle.at): idle.host for idle in self.idle}


def accounted(step: PipelineStep) -> Accounting:
    idle = [list(_idle(step, rank)) for rank in range(len(step.spans))]
    ranks = [_shares(step, rank, row) for rank, row in enumerate(idle)]
    return Accounting(step, tuple(wait for row in idle for wait in row), tuple(ranks))


def _idle(step: PipelineStep, rank: int) -> Iterator[Idle]:
    free = 0.0
    for at, span in enumerate(step.spans[rank]):
        arrivals = step.order.arrivals[rank][at]
        ready, source = max(((step.spans[a][n].end, a) for (a, n), _ in arrivals), default=(0.0, None))
        if source is not None and ready > free:
            waiting = max(0.0, min(span.start, ready) - free)
            yield Idle(rank, at, waiting, span.start - free - waiting, 0.0, source)
        else:
            yield Idle(rank, at, 0.0, 0.0, span.start - free, None)
        free = span.end


def _shares(step: PipelineStep, rank: int, idle: Sequence[Idle]) -> RankShares:
    spans = step.spans[rank]
    computing = sum(span.length for span in spans)
    return RankShares(
        computing,
        idle[0].waiting,
        sum(wait.waiting for wait in idle[1:]),
        sum(wait.message for wait in idle),
        sum(wait.host for wait in idle),
        step.length - spans[-1].end,
        computing - sum(span.busy for span in spans),
    )


TRUSTED = 0.03
"""If at most this share of the step is unexplained, the accounting is trusted."""


class Rung(NamedTuple):
    """A cause of the bubble, and what it costs in ms of the step."""

    cause: str
    ms: float


def ladder_of(accounting: Accounting) -> list[Rung]:
    """The causes, in the order in which they are added: the order of cells, with every operation equally long on all
    stages; uneven stages; single slow cells; messages; the host; and the unexplained rest."""
    step = accounting.step

    def replay_with(
        key: Callable[[Span], Hashable],
        message: float = 0.0,
        host: Mapping[tuple[int, int], float] = MappingProxyType({}),
    ) -> float:
        typical = {kind: mean(some) for kind, some in _lengths_by(key, step).items()}
        return makespan(replayed(step.order, lambda rank, at: typical[key(step.spans[rank][at])], message, host))

    heights = {
        "order": replay_with(lambda span: tuple(op for _, op in span.kind)),
        "uneven stages": replay_with(lambda span: span.kind),
        "single slow cells": replay_with(lambda span: span),
        "messages": replay_with(lambda span: span, accounting.message),
        "host": replay_with(lambda span: span, accounting.message, accounting.host),
        "not explained": step.length,
    }
    return [
        Rung(cause, now - below)
        for (cause, now), below in zip(heights.items(), [accounting.computing, *heights.values()])
    ]


def _lengths_by(key: Callable[[Span], Hashable], step: PipelineStep) -> Mapping[Hashable, list[float]]:
    """The lengths of the spans of each kind."""
    lengths: Mapping[Hashable, list[float]] = defaultdict(list)
    for span in (span for row in step.spans for span in row):
        lengths[key(span)].append(span.length)
    return lengths


SLOW_RANK = 0.08
"""A rank is slow if it computes longer than the median rank by this share."""

SLOW_CELL, SLOW_CELL_COST = 1.5, 0.02
"""A cell is slow if it takes so many times its median, and makes the step longer by this share."""

LATE_HOST = 0.04
"""The host is late if it takes this share of the step, in most steps."""

MOST_FINDINGS = 8


class ProfileFinding(NamedTuple):
    """An oddity, its cost in ms, and the cell where it shows, with its start."""

    kind: str
    text: str
    ms: float
    rank: int
    cell: Cell
    at: float


def findings_of(accounting: Accounting, steps: Sequence[Accounting]) -> list[ProfileFinding]:
    """The findings of a step, the most costly first; `steps` are the steps of its pipeline."""
    every = [*_slow_ranks(accounting), *_slow_cells(accounting), *_late_hosts(accounting, steps)]
    return sorted(every, key=lambda finding: -finding.ms)[:MOST_FINDINGS]


def _slow_ranks(accounting: Accounting) -> Iterator[ProfileFinding]:
    step, typical = accounting.step, median(shares.computing for shares in accounting.ranks)
    for rank, shares in enumerate(accounting.ranks):
        if shares.computing > (1 + SLOW_RANK) * typical:
            name, span = step.ranks[rank], max(step.spans[rank], key=lambda span: span.length)
            by_stage = _work_by_stage(accounting)
            usual = median(by_stage.values())
            slow = [stage for stage in step.table.stages_of(rank) if by_stage[stage] > (1 + SLOW_RANK) * usual]
            by_median = "; ".join(
                f"stage {stage} takes {by_stage[stage] / usual:.2f} x the median stage" for stage in slow
            )
            text = (
                f"Rank {name} computes {shares.computing / typical - 1:.0%} longer than the median rank "
                f"({shares.computing:.1f} and {typical:.1f} ms){f': {by_median}' if by_median else ''}."
            )
            yield ProfileFinding("slow rank", text, shares.computing - typical, name, span.cells[0], span.start)


def _work_by_stage(accounting: Accounting) -> dict[int, float]:
    """Ms of all cells of each stage. Cells that start together share their time."""
    work: dict[int, float] = defaultdict(float)
    for span in (span for row in accounting.step.spans for span in row):
        for cell in span.cells:
            work[cell.stage] += span.length / len(span.cells)
    return work


def _slow_cells(accounting: Accounting) -> Iterator[ProfileFinding]:
    typical = {kind: median(some) for kind, some in _lengths_by(lambda span: span.kind, accounting.step).items()}
    for rank, row in zip(accounting.step.ranks, accounting.step.spans):
        for span in row:
            more = span.length - typical[span.kind]
            if span.length > SLOW_CELL * typical[span.kind] and more > SLOW_CELL_COST * accounting.step.length:
                cells = " and ".join(map(str, span.cells))
                times = f"{span.length / typical[span.kind]:.1f} x its median" if typical[span.kind] else "usually none"
                text = f"{cells} on rank {rank} takes {span.length:.1f} ms, {times}."
                yield ProfileFinding("slow cell", text, more, rank, span.cells[0], span.start)


def _late_hosts(accounting: Accounting, steps: Sequence[Accounting]) -> Iterator[ProfileFinding]:
    for rank, shares in enumerate(accounting.ranks):
        late = [other.ranks[rank].host > LATE_HOST * other.step.length for other in steps]
        if shares.host > LATE_HOST * accounting.step.length and 2 * sum(late) > len(late):
            worst: Idle = max((idle for idle in accounting.idle if idle.rank == rank), key=lambda idle: idle.host)
            span = accounting.step.spans[rank][worst.at]
            text = (
                f"Rank {accounting.step.ranks[rank]} idles for {shares.host:.1f} ms although its inputs are there, "
                f"mostly before {span.cells[0]} ({worst.host:.1f} ms)."
            )
            yield ProfileFinding("host", text, shares.host, accounting.step.ranks[rank], span.cells[0], span.start)
