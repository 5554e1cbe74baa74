"""Shows a result where the player is: as a page in a notebook, as text in a terminal."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from .html import page
from .result import Result
from .reward import smile_text

_shown: list[tuple[int, Result]] = []
"""The results of the cell that ran last, with its number."""


def show(result: Result) -> None:
    """Displays it once, with its picture; prints it where nothing can be displayed."""
    text = "\n".join(filter(None, [result.text(), smile_text(result)]))
    shell = _shell()
    if shell is None:
        print(text)
        return
    from IPython.display import display

    _shown[:] = [entry for entry in _shown if entry[0] == shell.execution_count]
    _shown.append((shell.execution_count, result))
    display({"text/plain": text, "text/html": page(result, picture_of(result))}, raw=True)


def shown_in_this_cell(result: Result) -> bool:
    shell = _shell()
    count = shell.execution_count if shell is not None else 0
    return any(number == count and one is result for number, one in _shown)


def picture_of(result: Result) -> str:
    """The timeline as far as the run went, as SVG; empty if nothing happened or nothing can draw here."""
    trace = result.trace
    if trace is None or not any(trace.events(rank) for rank in range(trace.size.ranks)):
        return ""
    try:
        import drawing
    except ImportError:
        return ""
    with redirect_stdout(StringIO()):  # its two figures stand on the page already, and so does what is wrong
        picture = drawing.draw(trace, title=result.puzzle.title, judged=False)
    return drawing.svg(picture)


def _shell() -> Any:
    """The running IPython, if any; not imported if nobody else has."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None
