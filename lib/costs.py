"""Sizes and durations: one frozen record, counted in whole elements and whole ticks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

TICKS_PER_STEP = 10
"""Time is counted in integer tenths of a step, so that sums never drift."""

HIDDEN = 512
"""Width of a layer: a weight is HIDDEN x HIDDEN elements."""

LENGTH = 256
"""Tokens in one microbatch: an activation is HIDDEN x LENGTH elements."""

CLASSIC_TICKS: Mapping[str, int] = MappingProxyType(
    {
        "forward": 10,
        "backward": 10,
        "loss": 0,
        "update": 5,
        "allreduce": 3,
        "allgather": 3,
        "scatterreduce": 3,
        "pass_to": 2,
        "receive": 2,
    }
)


@dataclass(frozen=True)
class Costs:
    """One setting's sizes and prices. Sizes in elements; `ticks` of each timed operation, per batch or value."""

    name: str = "classic"
    hidden: int = HIDDEN
    length: int = LENGTH
    ticks: Mapping[str, int] = field(default_factory=lambda: CLASSIC_TICKS)

    @property
    def weight(self) -> int:
        """Elements of one layer's weight; its optimizer state and its gradient are as large."""
        return self.hidden * self.hidden

    @property
    def activation(self) -> int:
        """Elements of one microbatch's activation; its gradient is as large."""
        return self.hidden * self.length

    def duration(self, operation: str, items: int = 1) -> int:
        """Ticks of `operation` on `items` batches (forward, backward, loss) or values (messages);
        operations without a price take none."""
        return self.ticks.get(operation, 0) * items


def elements_sent(operation: str, elements: int, ranks: int) -> int:
    """Elements one rank sends when it brings `elements` to an operation, by the ring algorithms.

    All-reduce 2(N-1)/N S, reduce-scatter (N-1)/N S, all-gather (N-1) times the shard (Patarasuk and Yuan 2009,
    "Bandwidth optimal all-reduce algorithms for clusters of workstations", section 3); a message S.
    """
    match operation:
        case "allreduce":
            return 2 * (ranks - 1) * elements // ranks
        case "scatterreduce":
            return (ranks - 1) * elements // ranks
        case "allgather":
            return (ranks - 1) * elements
        case "pass_to":
            return elements
    return 0


CLASSIC = Costs()

COSTS: Mapping[str, Costs] = MappingProxyType({CLASSIC.name: CLASSIC})
"""Every known cost record by name: a trace names the one it was made with."""


def steps(ticks: int) -> float:
    """Ticks as steps: 199 is 19.9, never 19.900000000000006."""
    return ticks / TICKS_PER_STEP


def steps_text(ticks: int) -> str:
    """Ticks as people read them: 35 is '3.5', 30 is '3'."""
    return f"{ticks / TICKS_PER_STEP:g}" if ticks < 10**6 else f"{ticks / TICKS_PER_STEP:.1f}"
