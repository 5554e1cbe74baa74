"""Result of a play, which shows itself in a notebook or a terminal."""

from .display import display_result, show_once, shown_in_this_cell
from .html import lines_block, picture_frame
from .words import ResultWords


class Result(ResultWords):
    """One play of one puzzle."""

    def show(self) -> None:
        """Shows it again."""
        display_result(self)

    def compare(self) -> None:
        """Shows the reference's run beside this one, and the lines that differ."""
        track, text = (
            self.track,
            "\n".join(self.beside_reference) or f"there is no reference of {self.puzzle.slug} here",
        )
        trace = self.verdict.trace
        show_once(
            object(),
            text,
            lambda: (
                lines_block(text.splitlines())
                + picture_frame(track.beside_reference(self.puzzle, trace, **track.coloured(self.colour)))
            ),
        )

    def _ipython_display_(self) -> None:
        """Shows the result as the value of a cell, unless the cell that played it has already shown it."""
        if not shown_in_this_cell(self):
            self.show()
