"""The catalog of the schedule track, by chapters in the order of play: one module per puzzle, named after it."""

from __future__ import annotations

from collections.abc import Mapping

from puzzles.catalog.listing import Listing

from .chapters import CHAPTERS, CLASSICS
from .puzzle import SchedulePuzzle

PUZZLES: Mapping[str, SchedulePuzzle] = Listing(
    {slug: module for chapter in CHAPTERS for slug, module in chapter.modules.items()}
)

__all__ = ["CHAPTERS", "CLASSICS", "PUZZLES", "SchedulePuzzle"]
