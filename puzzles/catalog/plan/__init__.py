"""The plan puzzles: a single chapter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from puzzles.catalog.content import chapters
from puzzles.catalog.puzzle import Listing

if TYPE_CHECKING:
    from .puzzle import PlanPuzzle

(CHAPTER,) = chapters("plan")

PLAN_PUZZLES: Listing[PlanPuzzle] = Listing([CHAPTER])

__all__ = ["CHAPTER", "PLAN_PUZZLES"]
