"""Results that show themselves where the player is, as a page or as text, and the places in the player's code.

A result is shown once in a cell, when it is played or as the cell's value. A place is the innermost line of the
player's code that an exception came through; the code is known by the globals of the definition. A class is found by
the lines of its methods, since `inspect` cannot find a class in a cell.
"""

import ast
import inspect
import linecache
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import dedent
from types import CodeType, FunctionType, TracebackType
from typing import Any, NamedTuple

from lib import Report, Trace, peak_lines
from lib.ledger.traffic import traffic_lines
from puzzles.failure import Failure
from puzzles.tracks.free_play import FreeGame, figures, picture, summary

if {"IPython", "marimo"} & sys.modules.keys():
    import drawing  # noqa: F401  # values then show themselves as pictures; a script starts without

# --- Places ---


AROUND = 2
"""Lines shown before and after."""


class SourceLine(NamedTuple):
    """Line `line` of `file`, which is a cell or a file on disk; 0 if unknown."""

    file: str
    line: int

    def excerpt(self) -> list[tuple[int, str]]:
        """The line and the lines around it, numbered, without their common indentation."""
        lines = linecache.getlines(self.file)
        if not 0 < self.line <= len(lines):
            return []
        first, last = max(1, self.line - AROUND), min(len(lines), self.line + AROUND)
        while first < self.line and not lines[first - 1].strip():
            first += 1
        while last > self.line and not lines[last - 1].strip():
            last -= 1
        shown = dedent("".join(line.rstrip() + "\n" for line in lines[first - 1 : last]))
        return list(enumerate(shown.splitlines(), first))


NOWHERE = SourceLine("", 0)


def place_of(error: BaseException, definition: Any) -> SourceLine:
    """The innermost line of the player's code that an exception came through, else the line that it names."""
    names = getattr(_function_of(definition), "__globals__", None)
    at = NOWHERE
    for traceback in _tracebacks(error):
        if traceback.tb_frame.f_globals is names:
            at = SourceLine(traceback.tb_frame.f_code.co_filename, traceback.tb_lineno)
    return at if at.line else SourceLine(file_of(definition), getattr(error, "line", 0))


def file_of(definition: Any) -> str:
    """The file or cell of a function or class; empty for anything not defined in Python."""
    code = getattr(_function_of(definition), "__code__", None)
    return code.co_filename if isinstance(code, CodeType) else ""


def first_line_of(definition: Any) -> int:
    """The line on which a function or class is defined; 0 if unknown."""
    code = getattr(_function_of(definition), "__code__", None)
    if not isinstance(definition, type):
        return code.co_firstlineno if isinstance(code, CodeType) else 0
    tree = tree_of(definition)
    return getattr(tree, "lineno", 0)


def tree_of(definition: Any) -> ast.AST | None:
    """The syntax tree of a function or class, if its source can be found."""
    if isinstance(definition, type):
        return _tree_of_class(definition)
    try:
        return ast.parse(dedent(inspect.getsource(definition))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return None


def _tree_of_class(cls: type) -> ast.ClassDef | None:
    """Finds a class by the lines of its methods, because `inspect` cannot find a class in a notebook's cell."""
    code = getattr(_function_of(cls), "__code__", None)
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename))) if isinstance(code, CodeType) else None
    except (SyntaxError, ValueError, RecursionError):
        return None
    around = [
        node
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__
        if isinstance(code, CodeType) and node.lineno <= code.co_firstlineno <= (node.end_lineno or 0)
    ]
    return around[-1] if around else None


def _function_of(definition: Any) -> Any:
    """The function itself; for a class its first method, whose code and globals are in the same place."""
    if isinstance(definition, type):
        return next((value for value in vars(definition).values() if isinstance(value, FunctionType)), definition)
    return inspect.unwrap(definition)


def _tracebacks(error: BaseException) -> Iterator[TracebackType]:
    """The tracebacks of an error and, if the player's code is not in it, of its causes; outermost first."""
    for source in (error.__context__, error):
        traceback = source.__traceback__ if source is not None else None
        while traceback is not None:
            yield traceback
            traceback = traceback.tb_next


# --- Results ---


_shown: list[tuple[int, object]] = []
"""The results of the cell that ran last, with its number."""


def rendered(part: str, *given: object) -> str:
    """What a macro of the reports' template `notebook.html` makes of its arguments."""
    from puzzles.screens.html import environment  # here, because it loads rich, and a browser has no jinja2

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
