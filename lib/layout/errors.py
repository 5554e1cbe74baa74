"""The error of the layout track: one sentence that includes the numbers."""

from lib.errors import PuzzleError


class LayoutError(PuzzleError):
    """A layout, strategy, graph or cap that is not possible."""

    reason = "layout"
