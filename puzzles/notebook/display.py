"""Shows a result where the player is: as a page in a notebook, as text in a terminal."""

import sys
from collections.abc import Callable
from typing import Any

from .html import result_page
from .reward import smile_text
from .words import ResultWords

_shown: list[tuple[int, object]] = []
"""The results of the cell that ran last, with its number."""


def display_result(result: ResultWords) -> None:
    """Displays a result once, with its picture; prints it where nothing can be displayed."""
    text = "\n".join(filter(None, [result.text(), smile_text(result)]))
    show_once(result, text, lambda: result_page(result, picture_of(result)))


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
