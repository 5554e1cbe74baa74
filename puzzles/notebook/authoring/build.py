"""Builds the notebooks from their percent sources, the catalog and the solutions; the output is always the same bytes.

A markdown cell that holds only `{setup}`, `{collective: NAME}` or `{puzzle: SLUG}` is replaced by cells made here, so
that notebooks use the texts of the catalog.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from lib.extras import install_command
from puzzles.catalog.schedule import PUZZLES
from puzzles.custom import OwnFolder, folders
from puzzles.tracks import find, find_several
from puzzles.tracks.references import reference_file

from . import sections
from .collective_svg import collective_markdown

SOURCES = Path(__file__).parents[3] / "notebooks"
jupytext: Any = import_module("jupytext")  # in this way, since both are untyped
nbformat: Any = import_module("nbformat")

MARKER = re.compile(r"\{(setup|puzzle|collective|chapter)(?:: *(\w+))?\}")


class MissingPackageError(ImportError):
    """A package that is needed is not installed; the message says how to install it."""


class Book(NamedTuple):
    """One notebook: the name of its file, without a folder, and its text."""

    file: str
    text: str


def books(solved: bool = False) -> list[Book]:
    """All notebooks, with gaps to fill or solved."""
    shipped = [Book(path.stem + ".ipynb", build(path, solved)) for path in sorted(SOURCES.glob("[0-9]*.py"))]
    return [*shipped, *(own_book(folder, solved) for folder in folders())]


def own_book(folder: OwnFolder, solved: bool = False) -> Book:
    """The notebook of a folder of puzzles, which has to lie next to it."""
    title, *_ = (chapter.title for chapter in folder.chapters.values())
    cells = [("markdown", f"# {title}", "title"), ("markdown", "{setup}", "")]
    add = "from puzzles import play\nfrom puzzles.custom import add_folder\n\n"
    cells.append(
        ("code", f'{add}add_folder("{folder.path.name}")  # the folder of these puzzles, next to this notebook', "add")
    )
    for own in folder.puzzles.values():
        path = own.path(own.reference) if solved and own.reference else None
        cells += sections.any_puzzle_cells(own.puzzle, path if path and path.is_file() else None)
    return Book(f"{folder.path.name}.ipynb", _written(cells, solved))


def build(path: Path, solved: bool = False) -> str:
    """The text of the notebook whose source is at `path`."""
    source = jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent")
    cells = [(cell.cell_type, cell.source, cell.metadata.get("name", "")) for cell in source.cells]
    return _written(cells, solved)


def _written(cells: list[tuple[str, str, str]], solved: bool) -> str:
    notebook = nbformat.v4.new_notebook(
        cells=list(_cells(nbformat.v4, cells, solved)),
        metadata={
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
    )
    nbformat.validate(notebook)
    return str(nbformat.writes(notebook)).rstrip("\n") + "\n"


def _cells(v4: Any, source: list[tuple[str, str, str]], solved: bool) -> Iterator[Any]:
    """Cells of nbformat 4, each with an id that does not change when other cells are added or removed."""
    taken: set[str] = set()
    for kind, text, name in _expanded(source, solved):
        identity = name or sha256(text.encode()).hexdigest()[:12]
        while identity in taken:
            identity += "-again"
        taken.add(identity)
        make = v4.new_code_cell if kind == "code" else v4.new_markdown_cell
        yield make(text, id=identity)


def _expanded(source: list[tuple[str, str, str]], solved: bool) -> Iterator[tuple[str, str, str]]:
    """The cells with those that markers stand for: of a puzzle, or of a chapter's puzzles that have no marker."""
    markers = [MARKER.fullmatch(text.strip()) if kind == "markdown" else None for kind, text, _ in source]
    marked = {marker[2] for marker in markers if marker is not None}
    for (kind, text, name), marker in zip(source, markers):
        if marker is None:
            yield kind, text, name
        elif marker[1] == "setup":
            yield "code", sections.setup(), "setup"
        elif marker[1] == "collective":
            yield "markdown", collective_markdown(marker[2]), f"{marker[2]}-picture"
        elif marker[1] == "chapter":
            for slug in find_several(marker[2]):
                yield from () if slug in marked else _puzzle(slug, solved)
        else:
            yield from _puzzle(marker[2], solved)


def _puzzle(slug: str, solved: bool) -> Iterator[tuple[str, str, str]]:
    reference = reference_file(slug) if solved else None
    if slug in PUZZLES:
        return sections.puzzle_cells(PUZZLES[slug], reference)
    return sections.any_puzzle_cells(find(slug), reference)


def as_marimo(book: Book) -> Book:
    """The same notebook as a Python file that `marimo edit` opens."""
    if find_spec("marimo") is None:
        raise MissingPackageError(f"this needs marimo; install it with: {install_command('marimo')}")
    with TemporaryDirectory() as folder:
        source, made = Path(folder, book.file), Path(folder, book.file).with_suffix(".py")
        source.write_text(book.text, encoding="utf-8")
        command = [sys.executable, "-m", "marimo", "--quiet", "convert", str(source), "-o", str(made)]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        return Book(made.name, made.read_text(encoding="utf-8"))
