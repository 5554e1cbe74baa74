"""Cells made from the catalog and from `solutions/`: the cells of one puzzle, and the setup cell."""

import ast
import re
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from puzzles.address import requirement, source
from puzzles.catalog.puzzle import Puzzle
from puzzles.catalog.schedule import SchedulePuzzle
from puzzles.catalog.schedule.setting_text import differences, size_text
from puzzles.reports.html import environment, rendered
from puzzles.tracks import place, track_of
from puzzles.tracks.outcomes import capitalized
from puzzles.tracks.schedule.words import reminder, value_calls
from puzzles.version import VERSION

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
    size = size_text(puzzle.goal.size)
    task = _markdown().task(puzzle, heading, where, changes, _overview(puzzle), size, calls)
    return _cells(puzzle, task, solution_or_starter(puzzle, reference))


def _overview(puzzle: Puzzle) -> str:
    """The picture beside the statement, within Markdown; empty if the puzzle has none."""
    picture = track_of(puzzle.slug).show.sketch(puzzle, rendered)
    data = b64encode((picture or "").encode()).decode()
    return f"![What each rank keeps, and who talks to whom](data:image/svg+xml;base64,{data})" if picture else ""


def any_puzzle_cells(puzzle: Puzzle, reference: Path | None) -> Iterator[Cell]:
    """The same of a puzzle of any track, a teacher's too, with the imports."""
    track = track_of(puzzle.slug)
    code = f"{track.words.starter_head([puzzle]).strip()}\n\n\n{solution_or_starter(puzzle, reference)}"
    return _cells(puzzle, _markdown().any_task(puzzle, track), code)


def _cells(puzzle: Puzzle, task: str, code: str) -> Iterator[Cell]:
    slug = puzzle.slug
    sources = [_linked(str(one)) for one in filter(None, (*puzzle.sources, puzzle.credit))]
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


def _linked(source: str) -> str:
    return re.sub(r"arXiv (\d{4}\.\d{4,5})", r"[arXiv \1](https://arxiv.org/abs/\1)", source)
