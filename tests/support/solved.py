"""The best known schedules, each with the puzzles that its file solves."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from lib import Outcome, Record, run
from puzzles.catalog.schedule import PUZZLES, SchedulePuzzle
from puzzles.tracks import chapter_of
from tests.support.selection import first_of_each_kind
from tests.support.variants import module_of

RECORDS = list(
    dict.fromkeys(
        record for puzzle in PUZZLES.values() for record in puzzle.goal.records if not record.by.endswith(".json")
    )
)
"""Those that are functions; of a found one there is only the trace."""


def record_name(record: Record) -> str:
    file, variant = record.file_and_variant
    return "-".join(filter(None, [Path(file).stem, variant, f"{record.timesteps:g}"]))


def solved_by(record: Record) -> Iterator[tuple[SchedulePuzzle, Any]]:
    """The puzzles that have a record and that its file has a function for, with the functions."""
    module = module_of(*record.file_and_variant)
    for slug, puzzle in PUZZLES.items():
        if hasattr(module, slug) and record in puzzle.goal.records:
            yield puzzle, getattr(module, slug)


def reference_of(slug: str) -> Any:
    return getattr(import_module(f"solutions.{slug}"), slug)


def records_of(slug: str) -> Iterator[tuple[Record, Any]]:
    """The records of a puzzle's goal whose file solves this puzzle, with the functions."""
    for record in filter(RECORDS.__contains__, PUZZLES[slug].goal.records):
        yield from ((record, function) for puzzle, function in solved_by(record) if puzzle.slug == slug)


def played(puzzle: SchedulePuzzle, function: Any) -> Outcome:
    return run(function, *puzzle.goal.size, setting=puzzle.goal.setting)


SOME_PUZZLES = first_of_each_kind(((slug,) for slug in PUZZLES), lambda case: chapter_of(case[0]).name, every=3)
"""Slugs as parameters: of each chapter one in three is quick, the others are slow."""

SOME_RECORDS = first_of_each_kind(((record,) for record in RECORDS), lambda case: next(solved_by(case[0]))[0].slug)
"""As parameters: of each puzzle the first is quick, the others are slow."""
