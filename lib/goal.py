"""The goal of a schedule puzzle: its size, its targets, and the best that is known."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import NamedTuple

from .costs import Costs
from .setting import CLASSIC_SETTING, Setting, Size

MEMORY_PRECISION = 100_000


class Record(NamedTuple):
    """The best known schedule at some point of the trade: steps, elements, and who found it."""

    timesteps: float
    peak_memory: int
    by: str = ""

    def dominates(self, timesteps: float, peak_memory: int) -> bool:
        """True if this is at least as good in both, and better in one."""
        mine, theirs = (self.timesteps, self.peak_memory), (timesteps, peak_memory)
        return mine != theirs and mine[0] <= theirs[0] and mine[1] <= theirs[1]


@dataclass(frozen=True)
class Goal:
    """The targets of one puzzle: `time` in whole steps, `memory` in elements, stated to 100,000; `host`, where that is
    limited, in elements parked on the tier of this name."""

    slug: str
    size: Size
    time: int
    memory: int
    records: tuple[Record, ...] = ()
    setting: Setting = CLASSIC_SETTING
    host: int | None = None

    @property
    def costs(self) -> Costs:
        return self.setting.costs

    def meets_time(self, timesteps: float) -> bool:
        """Compared in whole steps, as the target is stated: 33.3 meets 33."""
        return floor(timesteps) <= self.time

    def meets_memory(self, elements: int) -> bool:
        """Compared in hundreds of thousands: 4,194,304 meets 4,100,000."""
        return elements // MEMORY_PRECISION <= self.memory // MEMORY_PRECISION

    def meets_host(self, elements: int) -> bool:
        """Compared as memory is; without a limit everything meets it."""
        return self.host is None or elements // MEMORY_PRECISION <= self.host // MEMORY_PRECISION
