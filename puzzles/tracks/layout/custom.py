"""Puzzles on layouts in files."""

from typing import Any

from puzzles.catalog.content import reader_of
from puzzles.tracks import base


class Custom(base.Custom[Any]):
    puzzle_class = "LayoutPuzzle"
    solutions = "layout"
    read = staticmethod(reader_of("layout"))
