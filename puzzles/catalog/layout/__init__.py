"""The layout puzzles: a single chapter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from puzzles.catalog.content import chapters
from puzzles.catalog.puzzle import Listing

if TYPE_CHECKING:
    from .puzzle import LayoutPuzzle

(CHAPTER,) = chapters("layout")

LAYOUT_PUZZLES: Listing[LayoutPuzzle] = Listing([CHAPTER])

__all__ = ["CHAPTER", "LAYOUT_PUZZLES"]
