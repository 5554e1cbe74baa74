"""A schedule puzzle: the texts that every puzzle has, a goal, other sizes, and the calls that a solution needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from lib import Goal, Size
from puzzles.catalog.puzzle import Puzzle

from .sketch import PlaceSketch

EXTENDED = tuple("group tag step tier to outer on scale shares into past grad_keys total".split())
"""Parameters of calls that the classic games do not have. A puzzle names the ones that it needs."""

RELOAD_REASON = "a rank begins again with all that it has loaded"

TOLERANCE = 1.25
"""A schedule at another size is noted if its timesteps times its memory are more than so many times the reference's.
The product leaves it free to trade one for the other; of the records none comes near."""

TOLERANCE_WITH_TRAFFIC = 2
"""The same for timesteps times memory times traffic. It is wider, because laps of a pipeline send more for less
memory."""


class ReferenceAt(NamedTuple):
    """What the reference of a puzzle scores at a size that is not shown: timesteps, peak memory in elements, and the
    elements that its busiest rank sends (None: not measured)."""

    size: Size
    timesteps: float
    peak_memory: int
    traffic: int | None = None

    def is_far_ahead_of(self, timesteps: float, peak_memory: int, traffic: int) -> bool:
        """True if these figures at the same size are much worse."""
        times = timesteps * peak_memory / (self.timesteps * self.peak_memory)
        sent = traffic / self.traffic if self.traffic else 1
        return times > TOLERANCE or times * sent > TOLERANCE_WITH_TRAFFIC


@dataclass(frozen=True, kw_only=True)
class SchedulePuzzle(Puzzle):
    """A coroutine to write, which every rank runs."""

    slug: str = field(init=False)
    """The goal's slug."""
    goal: Goal
    other_sizes: tuple[Size, ...]
    """Sizes other than the goal's at which a general schedule also works, in the same setting."""
    calls: tuple[str, ...]
    """The methods of Model that a solution is likely to need."""
    parameters: tuple[str, ...] = ()
    """Those of their parameters that the classic games do not have, and this one does: "group", "step"."""
    answer: str = ""
    """What a player is asked to predict before playing, and why it is so; the statement's last paragraph asks it."""
    reload_reason: str = RELOAD_REASON
    reload_advice: str = ""
    """What a schedule is told whose ranks end with less than they loaded (`Goal.steady`); else the calls decide."""
    sketch: PlaceSketch | None = None
    reference_at: tuple[ReferenceAt, ...] = ()
    """What the reference scores at the other sizes; `puzzles check` measures it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "slug", self.goal.slug)

    def reference_scores(self, size: Size) -> ReferenceAt | None:
        """What the reference scores at another size; None if that is not known."""
        return next((row for row in self.reference_at if row.size == size), None)
