"""Judges the record of a player's runs. No code of a player is executed here."""

from dataclasses import replace
from typing import Any

from puzzles.catalog.puzzle import Puzzle
from puzzles.failure import Failure
from puzzles.grading.judge import first_lines, judge, run_judge
from puzzles.grading.verdict import Verdict
from puzzles.notebook.local_run import NotebookDefinition
from puzzles.tracks import track_of
from puzzles.tracks.outcomes import RunOutcome

from .run_record import RunRecord, outcome_of

MISSING = RunOutcome(failure=Failure("crash", "this run is missing in the record"))


def judged(puzzle: Puzzle, data: Any) -> Verdict:
    """The verdict on a record; a failure if it is none."""
    track = track_of(puzzle.slug)
    try:
        record = RunRecord.read(data)
    except ValueError as why:
        record = RunRecord(problem=Failure("rule", str(why)))
    definition = NotebookDefinition(sketch=record.sketch, line=record.line, problem=record.problem)
    runs = iter(record.runs)
    verdict = run_judge(
        judge(puzzle, definition, keep=True),
        lambda request: run.outcome(track) if (run := next(runs, None)) is not None else MISSING,
    )
    return replace(verdict, printed=first_lines(record.printed))


def judged_run(puzzle: Puzzle, trace: str) -> Verdict:
    """The verdict on a saved run. It says nothing of other sizes, of which there is no run."""
    outcome = outcome_of(track_of(puzzle.slug).row_of_saved, trace)
    return run_judge(judge(puzzle, NotebookDefinition(), keep=True, only_shown=True), lambda request: outcome)
