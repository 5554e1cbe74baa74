"""Records that players found: the figures of classes, each with its source, in a folder with an index."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from puzzles.catalog.found import rows_of

from .puzzle import EnginePuzzle

FOUND = Path(__file__).resolve().parents[3] / "solutions" / "engine" / "records" / "found"
"""Those of the shipped puzzles."""


def with_found(puzzle: EnginePuzzle, folder: Path) -> EnginePuzzle:
    """A puzzle with the records of a folder that are its own and have all of its figures."""
    rows = [row for row in rows_of(folder) if row.get("puzzle") == puzzle.slug and puzzle.targets.keys() <= row.keys()]
    found = tuple({name: int(str(row[name])) for name in puzzle.targets} for row in rows)
    return replace(puzzle, records=(*puzzle.records, *found)) if found else puzzle
