"""Every record has a solution file, its figures and its family; no other record of that family beats it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import solutions
from lib import Outcome, Record, referee, run
from lib.judging.family import FAMILIES, MIXED
from puzzles.catalog.schedule import CLASSICS, PUZZLES, SchedulePuzzle
from puzzles.catalog.schedule.records import RECORDS
from puzzles.grading.grader import grade_file
from puzzles.notebook.play import play

ROOT = Path(solutions.__file__).parent.parent
ALL = list(dict.fromkeys(record for puzzle in PUZZLES.values() for record in puzzle.goal.records))


def solved_by(record: Record) -> Iterator[tuple[SchedulePuzzle, Any]]:
    """The puzzles that a record's file has a function for, with the functions. A file whose schedule has a parameter
    may be the source of several records, which its FRONT lists by timesteps."""
    module = import_module(".".join(Path(record.by).with_suffix("").parts))
    for slug, puzzle in PUZZLES.items():
        if hasattr(module, slug):
            yield puzzle, getattr(module, "FRONT", {}).get(record.timesteps) or getattr(module, slug)


def played(puzzle: SchedulePuzzle, function: Any) -> Outcome:
    return run(function, *puzzle.goal.size, setting=puzzle.goal.setting)


@pytest.mark.parametrize("record", ALL, ids=lambda record: f"{Path(record.by).stem}-{record.timesteps:g}")
def test_a_record_has_exactly_its_figures_and_its_family(record: Record) -> None:
    found = list(solved_by(record))
    assert found
    for puzzle, function in found:
        assert record in puzzle.goal.records
        report = referee(played(puzzle, function).trace, puzzle.goal)
        assert (report.error, report.timesteps, report.peak.memory) == (None, record.timesteps, record.peak_memory)
        assert report.family == record.family
        assert not any(note.costs_a_star for note in report.notes)


@pytest.mark.parametrize("record", ALL, ids=lambda record: f"{Path(record.by).stem}-{record.timesteps:g}")
def test_a_record_that_meets_the_targets_and_is_on_the_front_gets_three_stars(
    record: Record, capsys: pytest.CaptureFixture[str]
) -> None:
    for puzzle, function in solved_by(record):
        goal = puzzle.goal
        result = play(puzzle, function, seconds=60)  # a busy machine must not count as a slow schedule
        if goal.meets_time(record.timesteps) and goal.meets_memory(record.peak_memory):
            counts = record.family == goal.family or record in goal.open_front
            assert (result.status, result.stars) == ("passed", 3 if counts else 2)
        else:
            assert result.status == "over_target"


def test_in_the_sandbox_a_record_is_graded_as_it_is_played() -> None:
    puzzle = PUZZLES["fsdp"]
    record = next(r for r in puzzle.goal.records if "fsdp_one" in r.by)
    (verdict,) = grade_file(str(ROOT / record.by), [puzzle]).verdicts
    assert (verdict.timesteps, verdict.peak_memory, verdict.stars) == (record.timesteps, record.peak_memory, 3)


@pytest.mark.parametrize("puzzle", PUZZLES.values(), ids=PUZZLES)
def test_a_reference_passes_in_its_family_and_is_beaten_by_a_record_or_is_one(puzzle: SchedulePuzzle) -> None:
    solution = getattr(import_module(f"solutions.{puzzle.slug}"), puzzle.slug)
    report = referee(played(puzzle, solution).trace, puzzle.goal)
    assert (report.error, report.status, report.family) == (None, "passed", puzzle.goal.family)
    rivals = puzzle.goal.rivals(puzzle.goal.family)
    is_beaten = any(r.dominates(report.timesteps, report.peak.memory) for r in rivals)
    is_record = f"solutions/{puzzle.slug}.py" in {record.by for record in rivals}
    assert (report.stars, is_record) == ((2, False) if is_beaten else (3, True))
    assert is_beaten or puzzle.slug not in CLASSICS.files


def test_no_record_beats_another_of_its_family() -> None:
    for records in (puzzle.goal.records for puzzle in PUZZLES.values()):
        for record in records:
            others = (other for other in records if other.family == record.family)
            assert not any(other.dominates(record.timesteps, record.peak_memory) for other in others)


def test_every_family_of_a_record_is_one_with_a_name() -> None:
    assert {record.family for record in ALL} <= {*FAMILIES} - {MIXED}


def test_every_file_of_records_is_in_the_catalog() -> None:
    files = {f"solutions/records/{path.name}" for path in (ROOT / "solutions" / "records").glob("[!_]*.py")}
    assert files == {record.by for record in ALL if record.by.startswith("solutions/records/")}
    assert all((ROOT / record.by).is_file() for record in ALL)


def test_the_table_is_by_the_sizes_of_the_classics() -> None:
    classics = [PUZZLES[slug].goal for slug in CLASSICS.files]
    assert {*RECORDS} == {goal.size for goal in classics}
    assert all(goal.records is RECORDS[goal.size] for goal in classics)
