"""A schedule puzzle: the texts that every puzzle has, a goal, other sizes, and the calls that a solution needs."""

from __future__ import annotations

from dataclasses import dataclass, field

from lib import Goal, Size
from puzzles.catalog.puzzle import Puzzle

from .chapters import ORDER
from .reference_figures import ReferenceAt, shipped_at

CREDIT = "After the LLM Training Puzzles by Sasha Rush, https://github.com/srush/LLM-Training-Puzzles"
"""Credit for the original puzzles."""


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
    reload_reason: str = "a rank begins again with all that it has loaded"
    reload_advice: str = ""
    """What a schedule is told whose ranks end with less than they loaded (`Goal.steady`); else the calls decide."""
    reference_at: tuple[ReferenceAt, ...] = ()
    """What the reference scores at the other sizes, if this is a teacher's puzzle; `puzzles check` measures it."""
    credit: str = CREDIT

    def __post_init__(self) -> None:
        object.__setattr__(self, "slug", self.goal.slug)

    def reference_scores(self, size: Size) -> ReferenceAt | None:
        """What the reference scores at another size; None if that is not known."""
        own = next((row for row in self.reference_at if row.size == size), None)
        return own or shipped_at(self.slug, size)

    @property
    def number(self) -> int:
        """Its place in the order of play, from 0."""
        return ORDER.index(self.slug)
