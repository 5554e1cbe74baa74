"""Why there is a bubble: the same order is replayed with more and more of what was measured, and each rung is what it
adds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable
from statistics import mean
from typing import NamedTuple

from .accounting import Accounting
from .replay import makespan, replayed
from .spans import Span

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
