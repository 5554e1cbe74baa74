"""Statements of a teacher's schedule file on its reference: a record at the shown size, and figures at others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lib import Record
from puzzles.catalog.fields import NO_LIMIT
from puzzles.catalog.schedule import SchedulePuzzle
from puzzles.catalog.schedule.reference_figures import ReferenceAt
from puzzles.catalog.schedule.size_text import size_text
from puzzles.tracks.open_track import ReferenceRow


def games(puzzle: SchedulePuzzle) -> list[SchedulePuzzle]:
    """The puzzle at each of its sizes, the shown one first, without targets."""
    return [
        replace(puzzle, goal=replace(puzzle.goal, size=size, time=NO_LIMIT, memory=NO_LIMIT), other_sizes=())
        for size in dict.fromkeys((puzzle.goal.size, *puzzle.other_sizes))
    ]


def measured(
    game: SchedulePuzzle, puzzle: SchedulePuzzle, file: str, figures: Mapping[str, float], family: str
) -> ReferenceRow:
    """The row on the reference in `file`, from its figures in a game. At the shown size it is a record: the first that
    a better schedule has to beat."""
    timesteps, memory = float(figures["timesteps"]), int(figures["peak_memory"])
    if game.goal.size == puzzle.goal.size:
        return _record_row(Record(timesteps, memory, by=file, family=family))
    return _elsewhere_row(ReferenceAt(game.goal.size, timesteps, memory))


def stated(puzzle: SchedulePuzzle, file: str) -> Sequence[ReferenceRow]:
    """The rows on the reference in `file` that a puzzle has."""
    records = [_record_row(record) for record in puzzle.goal.records if record.by == file]
    return [*records, *map(_elsewhere_row, puzzle.reference_at)]


def _record_row(record: Record) -> ReferenceRow:
    python = f"Record({record.timesteps}, {record.peak_memory:_}, {record.by!r}, {record.family!r})"
    words = f"{_figures(record)} ({record.family or 'of no family'})"
    fields = {name: content for name, content in record._asdict().items() if content is not None}
    return ReferenceRow("records", fields, "at the shown size", words, f"{python} in the goal's records")


def _elsewhere_row(row: ReferenceAt) -> ReferenceRow:
    python = f"ReferenceAt({row.size!r}, {row.timesteps}, {row.peak_memory:_}) in reference_at"
    fields = {**row._asdict(), "size": row.size._asdict()}
    return ReferenceRow("reference_at", fields, f"with {size_text(row.size)}", _figures(row), python)


def _figures(row: Record | ReferenceAt) -> str:
    return f"{row.timesteps:g} timesteps and {row.peak_memory:,} elements"
