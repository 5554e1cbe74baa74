"""The error of the layout track: one sentence with the numbers in it."""

from __future__ import annotations

from lib.errors import PuzzleError


class LayoutError(PuzzleError):
    """A layout, a strategy, a graph or a cap that cannot be."""

    reason = "layout"
