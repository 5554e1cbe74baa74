"""Every record has a solution file, scores what it claims, and is dominated by no other."""

from __future__ import annotations

from pathlib import Path

import pytest

import solutions
from lib import Record
from puzzles.catalog.schedule import PUZZLES, SchedulePuzzle
from puzzles.grading.grader import grade_file

ROOT = Path(solutions.__file__).parent.parent
RECORDS = [(puzzle, record) for puzzle in PUZZLES.values() for record in puzzle.goal.records]


@pytest.mark.parametrize(("puzzle", "record"), RECORDS, ids=lambda x: Path(x.by).stem if isinstance(x, Record) else "")
def test_a_record_s_solution_gets_three_stars_with_exactly_its_figures(puzzle: SchedulePuzzle, record: Record) -> None:
    (verdict,) = grade_file(str(ROOT / record.by), [puzzle]).verdicts
    assert (verdict.timesteps, verdict.peak_memory, verdict.stars, verdict.notes) == (
        record.timesteps,
        record.peak_memory,
        3,
        (),
    )


def test_every_puzzle_has_a_record_that_beats_its_reference() -> None:
    for puzzle in PUZZLES.values():
        (verdict,) = grade_file(str(ROOT / "solutions" / f"{puzzle.slug}.py"), [puzzle]).verdicts
        assert verdict.status == "passed"
        assert verdict.stars == 2
        assert any(r.dominates(verdict.timesteps or 0, verdict.peak_memory or 0) for r in puzzle.goal.records)


def test_no_record_beats_another() -> None:
    for puzzle in PUZZLES.values():
        for record in puzzle.goal.records:
            assert not any(other.dominates(record.timesteps, record.peak_memory) for other in puzzle.goal.records)


def test_every_file_of_records_is_in_the_catalog() -> None:
    files = {f"solutions/records/{path.name}" for path in (ROOT / "solutions" / "records").glob("[!_]*.py")}
    assert files == {record.by for _, record in RECORDS}
