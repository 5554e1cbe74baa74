"""The catalog of the schedule track, by chapters in the order of play: one module per puzzle, named after it."""

from __future__ import annotations

from puzzles.catalog.listing import Listing

from .chapters import CHAPTERS, CLASSICS
from .puzzle import SchedulePuzzle

PUZZLES: Listing[SchedulePuzzle] = Listing(CHAPTERS)

__all__ = ["CHAPTERS", "CLASSICS", "PUZZLES", "SchedulePuzzle"]
