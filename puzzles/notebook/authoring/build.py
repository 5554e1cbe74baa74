"""Makes the notebooks: from their percent sources, the catalog and the solutions, the same bytes each time.

A markdown cell that holds only `{setup}`, `{collective: NAME}` or `{puzzle: SLUG}` stands for cells that are made
here, so that what a notebook says of a puzzle is what the catalog says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from puzzles.catalog.schedule import PUZZLES

from . import sections
from .collective_svg import collective_markdown

SOURCES = Path(__file__).parents[3] / "notebooks"
MARKER = re.compile(r"\{(setup|puzzle|collective)(?:: *(\w+))?\}")


class Missing(ImportError):
    """A package that making notebooks needs is not installed. The text says what to do."""


class Book(NamedTuple):
    """One notebook: the file to write it to, without a folder, and its text."""

    file: str
    text: str


def books(solved: bool = False) -> list[Book]:
    """All notebooks, with gaps to fill or solved.

    Raises:
        Missing: jupytext or nbformat is not installed.
    """
    return [Book(path.stem + ".ipynb", build(path, solved)) for path in sorted(SOURCES.glob("[0-9]*.py"))]


def build(path: Path, solved: bool = False) -> str:
    """The text of the notebook whose source is at `path`."""
    try:
        import jupytext
        import nbformat
    except ImportError as why:
        raise Missing(f"notebooks are made with jupytext: pip install 'training-puzzles[notebook]' ({why})") from None
    source = jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent")
    cells = [(cell.cell_type, cell.source, cell.metadata.get("name", "")) for cell in source.cells]
    notebook = nbformat.v4.new_notebook(
        cells=list(_cells(cells, solved)),
        metadata={
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
    )
    nbformat.validate(notebook)
    return str(nbformat.writes(notebook)).rstrip("\n") + "\n"


def _cells(source: list[tuple[str, str, str]], solved: bool) -> Iterator[Any]:
    """Every cell has an id of its own, which stays when others come and go."""
    from nbformat.v4 import new_code_cell, new_markdown_cell

    taken: set[str] = set()
    for kind, text, name in _expanded(source, solved):
        identity = name or sha256(text.encode()).hexdigest()[:12]
        while identity in taken:
            identity += "-again"
        taken.add(identity)
        make = new_code_cell if kind == "code" else new_markdown_cell
        yield make(text, id=identity)


def _expanded(source: list[tuple[str, str, str]], solved: bool) -> Iterator[tuple[str, str, str]]:
    for kind, text, name in source:
        marker = MARKER.fullmatch(text.strip()) if kind == "markdown" else None
        if marker is None:
            yield kind, text, name
        elif marker[1] == "setup":
            yield "code", sections.setup(), "setup"
        elif marker[1] == "collective":
            yield "markdown", collective_markdown(marker[2]), f"{marker[2]}-picture"
        else:
            yield from sections.puzzle(PUZZLES[marker[2]], solved)
