"""Result of a play, which shows itself in a notebook or a terminal."""

from __future__ import annotations

from .display import display_result, shown_in_this_cell
from .words import ResultWords


class Result(ResultWords):
    """One play of one puzzle."""

    def show(self) -> None:
        """Shows it again."""
        display_result(self)

    def _ipython_display_(self) -> None:
        """Shows the result as the value of a cell, unless the cell that played it has already shown it."""
        if not shown_in_this_cell(self):
            self.show()
