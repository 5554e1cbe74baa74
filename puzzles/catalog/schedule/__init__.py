"""The schedule puzzles, by chapters in the order of play."""

from __future__ import annotations

from puzzles.catalog.content import chapters
from puzzles.catalog.listing import Listing

from .puzzle import SchedulePuzzle
from .reading import read_puzzle

CHAPTERS = chapters("schedule", read_puzzle)
CLASSICS = CHAPTERS[0]

PUZZLES: Listing[SchedulePuzzle] = Listing(CHAPTERS)

__all__ = ["CHAPTERS", "CLASSICS", "PUZZLES", "SchedulePuzzle"]
