"""The schedule puzzles, by chapters in the order of play."""

from __future__ import annotations

from puzzles.catalog.content import chapters
from puzzles.catalog.puzzle import Listing

from .puzzle import SchedulePuzzle

CHAPTERS = chapters("schedule")
CLASSICS = CHAPTERS[0]

PUZZLES: Listing[SchedulePuzzle] = Listing(CHAPTERS)

__all__ = ["CHAPTERS", "CLASSICS", "PUZZLES", "SchedulePuzzle"]
