"""Where the time of a step went: each rank's time is computing, waiting, message, host, or before and after its cells.

A rank is free from the end of its previous slot, and its inputs are ready when the last of them has been made on other
ranks. Until then it waits for that rank; what follows is the message. If the inputs were ready first, the program (the
host) was late. The shares add up to the ranks times the step.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import mean, median
from typing import NamedTuple

from .gathered import PipelineStep
from .replay import makespan, replayed
from .spans import Span


class Idle(NamedTuple):
    """What comes before a slot, in ms; the rank waits for rank `source`, if its inputs came late."""

    rank: int
    at: int
    waiting: float
    message: float
    host: float
    source: int | None


class RankShares(NamedTuple):
    """One rank's step, in ms; `gaps` are the part of computing in which no kernel ran."""

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
        """Ms of computing, in the mean of all ranks."""
        return sum(one.computing for one in self.ranks) / len(self.ranks)

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
        return max(0.0, median([one.message for one in self.idle if one.source is not None] or [0.0]))

    @cached_property
    def waited_for(self) -> dict[int, float]:
        """By rank, how long others waited for it in all, after their warm-up."""
        found: dict[int, float] = {}
        for one in self.idle:
            if one.source is not None and one.at and one.waiting > 0:
                found[one.source] = found.get(one.source, 0.0) + one.waiting
        return found

    def host(self, rank: int, at: int) -> float:
        """The host's time before a slot."""
        return self._hosts[rank, at]

    @cached_property
    def _hosts(self) -> dict[tuple[int, int], float]:
        return {(one.rank, one.at): one.host for one in self.idle}


def accounted(step: PipelineStep) -> Accounting:
    """The shares of a step."""
    idle = [list(_idle(step, rank)) for rank in range(len(step.spans))]
    ranks = [_shares(step, rank, row) for rank, row in enumerate(idle)]
    return Accounting(step, tuple(one for row in idle for one in row), tuple(ranks))


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
        sum(one.waiting for one in idle[1:]),
        sum(one.message for one in idle),
        sum(one.host for one in idle),
        step.length - spans[-1].end,
        computing - sum(span.busy for span in spans),
    )


TRUSTED = 0.03
"""Up to this share of the step, what is not explained does not matter."""


class Rung(NamedTuple):
    """A cause of the bubble, and what it costs in ms of the step."""

    cause: str
    ms: float


def ladder_of(found: Accounting) -> list[Rung]:
    """The causes, in the order in which they are added: the order itself, with every operation as long on all stages;
    uneven stages; single slow cells; messages; the host; and what is not explained."""
    step = found.step

    def replay_with(key: Callable[[Span], Hashable], message: float = 0.0, host: bool = False) -> float:
        lengths = defaultdict(list)
        for row in step.spans:
            for span in row:
                lengths[key(span)].append(span.length)
        typical = {kind: mean(some) for kind, some in lengths.items()}
        times = replayed(
            step.order,
            lambda rank, at: typical[key(step.spans[rank][at])],
            message,
            *([found.host] if host else []),
        )
        return makespan(times)

    def operation(span: Span) -> Hashable:
        return tuple(op for _, op in span.kind)

    heights = {
        "order": replay_with(operation),
        "uneven stages": replay_with(lambda span: span.kind),
        "single slow cells": replay_with(lambda span: span),
        "messages": replay_with(lambda span: span, found.message),
        "host": replay_with(lambda span: span, found.message, host=True),
        "not explained": step.length,
    }
    rungs, below = [], found.computing
    for cause, height in heights.items():
        rungs.append(Rung(cause, height - below))
        below = height
    return rungs
