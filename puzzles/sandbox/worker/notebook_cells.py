"""Splits a player's file into its cells of code: a notebook, a script of jupytext, or a script as one cell.

Nothing is executed, and nothing is parsed but the JSON of a notebook: headers and metadata are passed over. The work
grows with the length of the text alone.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from puzzles.failure import UnreadableError

MAX_CODE = 4_000_000
"""Characters of code in a file, and of a script's comments."""

MAX_LINES = 2_000_000
MAX_CELLS = 1_000

MAX_SEARCHED = 1 << 20
"""Characters in which the first cell of a script is searched for."""

JUPYTEXT_HEADER = re.compile(r"^# ---\n(?:# .*\n|#\n)*?# *jupyter:", re.MULTILINE)
PERCENT_MARK = re.compile(r"^# %%(?=[ \[\r\n]|$).*\n?", re.MULTILINE)
LIGHT_MARK = re.compile(r"^# (?:\+(?= |$)|-$).*\n?", re.MULTILINE)
NO_CODE = re.compile(r"\[(?:markdown|md|raw)\]")

OTHER_LANGUAGE = re.compile(r"\s*%%(?!time|capture|prun)")
"""The first line of a cell in another language, or of a file to write."""

MAGIC = re.compile(
    r"""\s*(?: %{1,3}[a-zA-Z]                                     # %matplotlib inline
             | [!?] \s* [A-Za-z.~$\\/{}]                          # !pip install, ?help
             | \S+\?\s*$                                          # help?
             | [A-Za-z_]\w* \s* = \s* (?:%{1,3}|!)[a-zA-Z]        # files = !ls
             | (?:cat|cd|copy|cp|ddir|echo|ldir|ls|mkdir|mv|ren|rm|rmdir)(?:\s*$|\s[^=,]) )""",
    re.VERBOSE,
)
"""A line for IPython, not for Python."""


class NotebookCell(NamedTuple):
    """A cell of code: its first line among all lines of code, its text, and its number in the notebook, from 1."""

    first_line: int
    text: str
    number: int = 1


def is_notebook(name: str, text: str) -> bool:
    """True for a notebook, and for a script that jupytext would open as one."""
    start = text[:MAX_SEARCHED]
    return name.endswith(".ipynb") or bool(PERCENT_MARK.search(start) or JUPYTEXT_HEADER.match(start))


def read_cells(name: str, text: str) -> list[NotebookCell]:
    """Returns the cells of code in a file, whose lines end as Python counts them."""
    if name.endswith(".ipynb"):
        cells = list(_placed(_of_ipynb(text)))
    else:
        require_few(text)
        cells = list(_of_script(text)) if is_notebook(name, text) else [NotebookCell(1, text)]
    if len(cells) > MAX_CELLS:
        raise _too_much(len(cells), "cells", MAX_CELLS)
    return cells


def require_few(code: str) -> None:
    """Refuses code of too many characters or lines, with an UnreadableError."""
    for count, what, most in ((len(code), "characters", MAX_CODE), (code.count("\n") + 1, "lines", MAX_LINES)):
        if count > most:
            raise _too_much(count, what, most)


def _too_much(count: int, what: str, most: int) -> UnreadableError:
    return UnreadableError(f"this file has {count:,} {what} of code; at most {most:,} are read")


def _of_ipynb(text: str) -> list[tuple[int, str]]:
    """(number, code) of each cell, of Jupyter's formats 3 and 4."""
    try:
        return [(number, _source(cell)) for number, cell in _cells(json.loads(text)) if cell["cell_type"] == "code"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, MemoryError) as why:
        raise ValueError(f"it cannot be read as a notebook ({type(why).__name__}: {str(why)[:150]})") from None


def _cells(notebook: Any) -> Iterator[tuple[int, Any]]:
    sheets = notebook["worksheets"] if notebook["nbformat"] < 4 else [notebook]
    return enumerate((cell for sheet in sheets for cell in sheet["cells"]), 1)


def _source(cell: Any) -> str:
    source = cell["source"] if "source" in cell else cell["input"]
    return with_plain_newlines(source if isinstance(source, str) else "".join(source))


def with_plain_newlines(text: str) -> str:
    """With the ends of lines as Python counts them."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _placed(cells: list[tuple[int, str]]) -> Iterator[NotebookCell]:
    """The cells of a notebook, with their lines counted as if they were one file."""
    require_few("\n".join(code for _, code in cells))
    first = 1
    for number, code in cells:
        yield NotebookCell(first, code, number)
        first += code.count("\n") + 1


def _of_script(text: str) -> Iterator[NotebookCell]:
    """The text between marks, on the lines that it has in the file."""
    marks = list((PERCENT_MARK if PERCENT_MARK.search(text) else LIGHT_MARK).finditer(text))
    starts = [0, *(mark.end() for mark in marks)]
    ends = [*(mark.start() for mark in marks), len(text)]
    line, last = 1, 0
    for number, (start, end) in enumerate(zip(starts, ends), 1):
        line, last = line + text.count("\n", last, start), start
        if number == 1 or not NO_CODE.search(marks[number - 2][0]):
            yield NotebookCell(line, text[start:end], number)


def without_magics(code: str) -> str:
    """The code with IPython's lines as comments, and what they continue on; all lines stay where they are."""
    if OTHER_LANGUAGE.match(code):
        return ""
    lines, continued = code.split("\n"), False
    for at, line in enumerate(lines):
        if continued or MAGIC.match(line):
            lines[at] = f"# {line}"
            continued = line.rstrip().endswith("\\")
    return "\n".join(lines)
