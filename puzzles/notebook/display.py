"""Shows a result where the player is: as a page in a notebook, as text in a terminal."""

import sys
from collections.abc import Callable
from typing import Any

from .html import lines_block, picture_frame, result_page, smile_text
from .words import ResultWords

_shown: list[tuple[int, object]] = []
"""The results of the cell that ran last, with its number."""


def show_once(result: object, text: str, page: Callable[[], str]) -> None:
    """Displays a result as a page, or prints its text where nothing can be displayed."""
    shell = _shell()
    if shell is None:
        print(text)
        return
    from IPython.display import display

    show: Any = display  # untyped

    _shown[:] = [entry for entry in _shown if entry[0] == shell.execution_count]
    _shown.append((shell.execution_count, result))
    show({"text/plain": text, "text/html": page()}, raw=True)


def shown_in_this_cell(result: object) -> bool:
    shell = _shell()
    count = shell.execution_count if shell is not None else 0
    return any(number == count and one is result for number, one in _shown)


def picture_of(result: ResultWords) -> str:
    """The run, as far as it got, as SVG; empty if nothing happened or nothing can be drawn here."""
    if not result.verdict.trace:
        return ""
    coloured = result.track.coloured(result.colour)
    return result.track.picture(result.puzzle, result.verdict.trace, judged=False, **coloured)


def _shell() -> Any:
    """The running IPython, if any; does not import IPython."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


class Shown:
    """A result that a cell shows once: when it is played, or as the value of the cell."""

    def text(self) -> str:
        """The result in plain text."""
        raise NotImplementedError

    def page(self) -> str:
        """The result as HTML, with its picture."""
        raise NotImplementedError

    def show(self) -> None:
        """Shows it again."""
        show_once(self, self.text(), self.page)

    def _ipython_display_(self) -> None:
        if not shown_in_this_cell(self):
            self.show()


class Result(ResultWords, Shown):
    """One play of one puzzle."""

    def page(self) -> str:
        return result_page(self, picture_of(self))

    def show(self) -> None:
        """Shows it again, with the reward for three stars."""
        show_once(self, "\n".join(filter(None, [self.text(), smile_text(self)])), self.page)

    def compare(self) -> None:
        """Shows the reference's run beside this one, and the lines that differ."""
        track, trace = self.track, self.verdict.trace
        text = "\n".join(self.beside_reference) or f"there is no reference of {self.puzzle.slug} here"

        def page() -> str:
            picture = track.beside_reference(self.puzzle, trace, **track.coloured(self.colour))
            return lines_block(text.splitlines()) + picture_frame(picture)

        show_once(object(), text, page)
