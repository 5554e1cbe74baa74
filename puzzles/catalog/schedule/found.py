"""Records that players found, each with the trace that proves it, in a folder with an index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lib import Record
from puzzles.catalog.chapter import Chapter
from puzzles.catalog.found import rows_of

FOUND = Path(__file__).resolve().parents[3] / "solutions" / "records" / "found"
"""Those of the shipped puzzles."""


@dataclass(frozen=True)
class ScheduleChapter(Chapter):
    """A chapter whose puzzles have the records that players found."""

    def puzzle(self, slug: str) -> Any:
        return with_found(super().puzzle(slug), FOUND)


def with_found(puzzle: Any, folder: Path) -> Any:
    """A schedule puzzle with the records of a folder that are its own."""
    found = tuple(record_of(row) for row in rows_of(folder) if row.get("puzzle") == puzzle.slug)
    if not found:
        return puzzle
    return replace(puzzle, goal=replace(puzzle.goal, records=(*puzzle.goal.records, *found)))


def record_of(row: Mapping[str, object]) -> Record:
    """A row as a record, whose `by` is the file of its trace."""
    traffic = row.get("traffic")
    whose = str(row["file"]), str(row["family"])
    figures = float(str(row["timesteps"])), int(str(row["peak_memory"]))
    return Record(*figures, *whose, None if traffic is None else int(str(traffic)))
