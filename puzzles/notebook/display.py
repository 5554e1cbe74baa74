"""Results that show themselves where the player is, as a page or as text; and the result of a play without targets."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lib import Report, Trace, peak_lines
from lib.judging.traffic import traffic_lines
from puzzles.failure import Failure
from puzzles.tracks.free_play import FreeGame, figures, picture, summary

from .source_lines import SourceLine

_shown: list[tuple[int, object]] = []
"""The results of the cell that ran last, with its number."""


def rendered(part: str, *given: object) -> str:
    """What a macro of the reports' template `notebook.html` makes of its arguments."""
    from puzzles.reports.html import environment  # here, because it loads rich, and a browser has no jinja2

    return str(getattr(environment().get_template("notebook.html").module, part)(*given))


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


@dataclass(frozen=True, repr=False)
class FreeResult(Shown):
    """One play of a schedule at a size and in a setting: `status` is correct or failed."""

    game: FreeGame
    trace: Trace | None = None
    """The run, as far as it got."""
    report: Report | None = None
    """The referee's Report on a correct run; else None."""
    failure: Failure | None = None
    file: str = ""
    """The file or cell of the schedule."""
    explains: bool = False
    """True if the player asks for the explanation of the peak."""
    colour: str = "layer"
    """What the colours of operations show in its picture."""

    @property
    def status(self) -> str:
        return "failed" if self.failure else "correct"

    @property
    def reason(self) -> str:
        """The reason of a failure, in one word."""
        return self.failure.reason if self.failure else ""

    @property
    def message(self) -> str:
        return self.failure.sentence if self.failure else ""

    @property
    def values(self) -> Mapping[str, Any]:
        """What a correct run took, by name, as in `puzzles grade --json`."""
        return figures(self.report) if self.report is not None else {}

    @property
    def place(self) -> SourceLine:
        """The line that the message is about."""
        line = self.failure.line if self.failure else 0
        return SourceLine((self.failure and self.failure.file) or self.file, line)

    @property
    def why(self) -> Sequence[str]:
        """What the peak and the traffic of a correct run consist of, as lines."""
        return (*peak_lines(self.report.contents), *traffic_lines(self.report.sent)) if self.report is not None else ()

    def lines(self) -> Sequence[str]:
        """What a correct run took, in sentences."""
        found = summary(self.trace, self.report) if self.trace and self.report else ()
        return [*found, *filter(None, [self.game.note])]

    def __repr__(self) -> str:
        if self.report is None:
            return f"<{self.game.slug}: failed>"
        return f"<{self.game.slug}: {self.report.timesteps:g} timesteps, {self.report.peak.memory:,} elements>"

    def text(self) -> str:
        lines = [self.game.title, *([self.message] if self.failure else [])]
        lines += [f"{'->' if n == self.place.line else '  '} {n:>4} {code}" for n, code in self.place.excerpt()]
        return "\n".join(line.rstrip() for line in [*lines, *self.lines(), *self.shown_why])

    @property
    def shown_why(self) -> Sequence[str]:
        """The same where it is asked for."""
        return self.why if self.explains else ()

    def page(self) -> str:
        shown = picture(self.game, self.trace, self.colour) if self.trace is not None else ""
        return rendered("free_page", self, shown)
