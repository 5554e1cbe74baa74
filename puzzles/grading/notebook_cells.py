"""Reads the code cells of notebooks: `.ipynb`, and jupytext's scripts. Nothing of them is executed."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import NamedTuple

JUPYTEXT_HEADER = re.compile(r"^# ---\n(?:# .*\n|#\n)*?# *jupyter:", re.MULTILINE)
CELL_MARK = re.compile(r"^# %%(?=[ \[\r\n]|$)", re.MULTILINE)


class Cell(NamedTuple):
    """A cell of code: its first line among all lines, its text, and its number in the notebook, from 1."""

    first_line: int
    text: str
    number: int = 1


def is_notebook(path: Path, text: str) -> bool:
    """True for a notebook, and for a script that jupytext would open as one."""
    return path.suffix == ".ipynb" or bool(
        CELL_MARK.search(text[:MAX_SEARCHED]) or JUPYTEXT_HEADER.match(text[:MAX_SEARCHED])
    )


MAX_SEARCHED = 1 << 20
"""Characters in which the first cell is searched for."""


def read_cells(path: Path, text: str) -> list[Cell]:
    """Returns the code cells of a notebook, with IPython's magics turned into comments.

    Raises:
        ValueError: it cannot be read as a notebook.
    """
    try:
        cells = _of_ipynb(text) if path.suffix == ".ipynb" else _of_script(text)
        return [Cell(first, _without_magics(code), number) for first, code, number in cells]
    except Exception as why:  # a reader of formats that breaks on a broken one
        raise ValueError(f"it cannot be read as a notebook ({type(why).__name__}: {str(why)[:150]})") from None


def _of_ipynb(text: str) -> list[tuple[int, str, int]]:
    import nbformat  # here, because most submissions are scripts

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # older notebooks lack what newer ones have; nothing here needs it
        notebook = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
    first, cells = 1, []
    for number, cell in enumerate(notebook.cells, 1):
        if cell.cell_type == "code":
            code = cell.source.replace("\r\n", "\n")
            cells.append((first, code, number))
            first += code.count("\n") + 1
    return cells


def _of_script(text: str) -> list[tuple[int, str, int]]:
    import jupytext  # type: ignore[import-untyped]  # here, as above

    kind = "py:percent" if CELL_MARK.search(text) else "py:light"
    lines = text.split("\n")
    at, cells = 0, []
    for number, cell in enumerate(jupytext.reads(text, fmt=kind).cells, 1):
        if cell.cell_type == "code":
            at = _index_of(cell.source.split("\n"), lines, at)
            cells.append((at + 1, cell.source, number))
    return cells


def _index_of(code: list[str], lines: list[str], begin: int) -> int:
    """Index of the line on which a cell begins: jupytext uncomments magics, and changes nothing else."""
    for at in range(begin, len(lines) - len(code) + 1):
        if all(theirs in (ours, f"# {ours}") for ours, theirs in zip(code, lines[at:])):
            return at
    return begin


def _without_magics(code: str) -> str:
    from jupytext.magics import comment_magic  # type: ignore[import-untyped]

    if re.match(r"\s*%%(?!time|capture|prun)", code):  # another language, or a file to write
        return ""
    return "\n".join(comment_magic(code.split("\n")))
