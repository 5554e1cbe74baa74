"""A schedule puzzle: the words of every puzzle, a goal, and the sizes and calls that go with it."""

from __future__ import annotations

from dataclasses import dataclass, field

from lib import Goal, Size
from puzzles.catalog.puzzle import Puzzle

CREDIT = "After the LLM Training Puzzles by Sasha Rush, https://github.com/srush/LLM-Training-Puzzles"
"""Credit of the classic puzzles."""


@dataclass(frozen=True, kw_only=True)
class SchedulePuzzle(Puzzle):
    """A coroutine to write, which every rank runs."""

    slug: str = field(init=False)
    """The goal's slug."""
    number: int
    goal: Goal
    other_sizes: tuple[Size, ...]
    """Sizes, besides the goal's, at which a general schedule works too."""
    calls: tuple[str, ...]
    """The methods of Model that a solution is likely to need."""
    credit: str = CREDIT

    def __post_init__(self) -> None:
        object.__setattr__(self, "slug", self.goal.slug)
