"""Builds the notebooks from their percent sources, the catalog and the solutions; the output is always the same bytes.

A markdown cell that holds only `{setup}`, `{collective: NAME}` or `{puzzle: SLUG}` is replaced by cells made here, so
that notebooks use the texts of the catalog. Cells have ids that do not change when others are added or removed. The
pictures of collectives are computed by the runtime's own rule, so they cannot show what the game does not do. Where the
game is missing, as in Colab, the setup cell installs it from a wheel or from the published project, never by an
unclaimed name. Rejected: notebooks as sources, whose diffs nobody can read.
"""

import ast
import re
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from lib import Value, Weight, WeightGrad
from lib.errors import install_command
from lib.ledger.collectives import COLLECTIVE_RULES
from puzzles.address import requirement, source
from puzzles.catalog.puzzle import Puzzle
from puzzles.catalog.schedule import PUZZLES, SchedulePuzzle
from puzzles.catalog.schedule.setting_text import differences, size_text
from puzzles.custom import OwnFolder, folders
from puzzles.screens.html import environment, rendered
from puzzles.tracks import find, find_several, place, reference_file, track_of
from puzzles.tracks.outcomes import capitalized
from puzzles.tracks.schedule.words import reminder, value_calls
from puzzles.version import VERSION

# --- Pictures ---


RANKS = 4
INK, FULL = "#1f2933", "#2a788e"

TITLES = {
    "allreduce": "all-reduce: every rank gets the sum of all batches' gradients",
    "allgather": "all-gather: every rank gets all shards, joined",
    "scatterreduce": "reduce-scatter: every rank gets one shard of the summed gradient",
}


def brought(name: str) -> list[Value]:
    """Each rank's value before the collective: a shard of a weight, or the full gradient of one batch."""
    if name == "allgather":
        return [Weight(0, 1, 0, frozenset({rank}), RANKS) for rank in range(RANKS)]
    return [WeightGrad(0, 1, frozenset({rank}), RANKS) for rank in range(RANKS)]


def collective_svg(name: str) -> str:
    before = brought(name)
    rows = list(zip(before, COLLECTIVE_RULES[name](before, None, ())))
    has_batches = name != "allgather"
    return rendered("collective.svg", rows=rows, has_batches=has_batches, title=TITLES[name], ink=INK, full=FULL)


def in_markdown(words: str, svg: str) -> str:
    """A picture within Markdown; empty if there is none."""
    return f"![{words}](data:image/svg+xml;base64,{b64encode(svg.encode()).decode()})" if svg else ""


# --- Cells ---


Cell = tuple[str, str, str]
"""Kind, text, and name, which becomes the cell's id."""


def setup() -> str:
    """The code that makes the puzzles importable. Where they are missing, as in Colab, it installs them: from a wheel
    next to the notebook, or from the published project. Until there is one, a wheel is the only safe source: anybody
    could register an unclaimed name."""
    return rendered("setup_cell.txt", version=VERSION, source=source(), requirement=requirement())


def puzzle_cells(puzzle: SchedulePuzzle, reference: Path | None) -> Iterator[Cell]:
    """The cells of a schedule of the game, in a notebook that has the imports: its task, the code to write or the
    reference solution, the call that plays it, hints, and background."""
    heading, where = track_of(puzzle.slug).words.heading(puzzle), capitalized(place(puzzle.slug))
    changes, calls = differences(puzzle.goal.setting, puzzle.calls), [*reminder(puzzle), *value_calls(puzzle)]
    sketch = track_of(puzzle.slug).show.sketch(puzzle, rendered) or ""
    picture = in_markdown("What each rank keeps, and who talks to whom", sketch)
    task = _markdown().task(puzzle, heading, where, changes, picture, size_text(puzzle.goal.size), calls)
    return _cells_of(puzzle, task, solution_or_starter(puzzle, reference))


def any_puzzle_cells(puzzle: Puzzle, reference: Path | None) -> Iterator[Cell]:
    """The same of a puzzle of any track, a teacher's too, with the imports."""
    track = track_of(puzzle.slug)
    code = f"{track.words.starter_head([puzzle]).strip()}\n\n\n{solution_or_starter(puzzle, reference)}"
    return _cells_of(puzzle, _markdown().any_task(puzzle, track), code)


def _cells_of(puzzle: Puzzle, task: str, code: str) -> Iterator[Cell]:
    slug = puzzle.slug
    arxiv = re.compile(r"arXiv (\d{4}\.\d{4,5})")
    given = map(str, filter(None, (*puzzle.sources, puzzle.credit)))
    sources = [arxiv.sub(r"[arXiv \1](https://arxiv.org/abs/\1)", source) for source in given]
    yield "markdown", task, f"{slug}-task"
    yield "code", code, f"{slug}-code"
    yield "code", f'await play("{slug}", {slug})', f"{slug}-play"
    yield "markdown", _markdown().hints(puzzle).rstrip("\n"), f"{slug}-hints"
    yield (
        "markdown",
        _markdown().background(puzzle, track_of(slug).words.background(puzzle), sources),
        f"{slug}-background",
    )


def _markdown() -> Any:
    """The macros that make the Markdown cells."""
    return environment().get_template("puzzle_cells.md").module


def solution_or_starter(puzzle: Puzzle, reference: Path | None) -> str:
    """A solution's source without its docstring and imports; the starter if none is given."""
    if reference is None:
        return puzzle.starter.strip()
    text = reference.read_text(encoding="utf-8")
    head = [node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)]
    return "\n".join(text.splitlines()[head[-1].end_lineno :]).strip()


# --- Notebooks ---


SOURCES = Path(__file__).parents[2] / "notebooks"
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
        cells += any_puzzle_cells(own.puzzle, path if path and path.is_file() else None)
    return Book(f"{folder.path.name}.ipynb", _written(cells, solved))


def build(path: Path, solved: bool = False) -> str:
    """The text of the notebook whose source is at `path`."""
    jupytext: Any = import_module("jupytext")  # here, since the page takes pictures from this module; it is untyped
    source = jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent")
    cells = [(cell.cell_type, cell.source, cell.metadata.get("name", "")) for cell in source.cells]
    return _written(cells, solved)


def _written(cells: list[tuple[str, str, str]], solved: bool) -> str:
    nbformat: Any = import_module("nbformat")  # here, as above
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
            yield "code", setup(), "setup"
        elif marker[1] == "collective":
            yield "markdown", in_markdown(TITLES[marker[2]], collective_svg(marker[2])), f"{marker[2]}-picture"
        elif marker[1] == "chapter":
            for slug in find_several(marker[2]):
                yield from () if slug in marked else _puzzle(slug, solved)
        else:
            yield from _puzzle(marker[2], solved)


def _puzzle(slug: str, solved: bool) -> Iterator[tuple[str, str, str]]:
    reference = reference_file(slug) if solved else None
    if slug in PUZZLES:
        return puzzle_cells(PUZZLES[slug], reference)
    return any_puzzle_cells(find(slug), reference)


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
