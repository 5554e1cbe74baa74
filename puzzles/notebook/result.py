"""Result of a play, which shows itself where the player is."""

from __future__ import annotations

from .display import display_result, shown_in_this_cell
from .words import ResultWords


class Result(ResultWords):
    """One play of one puzzle."""

    def show(self) -> None:
        """Shows it again."""
        display_result(self)

    def _ipython_display_(self) -> None:
        """Asked for by name, it shows itself; in the cell that played it has done so already."""
        if not shown_in_this_cell(self):
            self.show()
