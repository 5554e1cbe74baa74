"""The error of the layout track: one sentence that includes the numbers."""

from lib.errors import PuzzleError


class LayoutError(PuzzleError):
    """A layout, strategy, graph or cap that is not possible."""

    reason = "layout"


class OutOfEffortError(LayoutError):
    """A search that found no plan with its effort; every plan costs at least `bound`."""

    def __init__(self, bound: int) -> None:
        super().__init__("no plan was found with this effort; allow more with effort=, or configure more operators")
        self.bound = bound
