"""Judges a saved run again, without running any code."""

from dataclasses import replace

from puzzles.catalog.puzzle import Puzzle
from puzzles.failure import Failure, sanitized
from puzzles.tracks import track_of
from puzzles.tracks.outcomes import RunOutcome

from .judge import Definition, judge, run_judge
from .source_file import MAX_FILE_SIZE
from .verdict import Verdict


def judge_saved(puzzle: Puzzle, data: bytes, keep: bool = False) -> Verdict:
    """The verdict on a saved run; the sizes that were not saved are not judged. `keep` keeps the run with it."""
    try:
        if len(data) > MAX_FILE_SIZE:
            raise ValueError(f"it has more than {MAX_FILE_SIZE:,} bytes")
        outcome = RunOutcome(track_of(puzzle.slug).row_of_saved(data.decode("utf-8-sig")))
    except ValueError as why:
        outcome = RunOutcome(failure=Failure("rule", sanitized(f"this file cannot be judged: {why}")))
    verdict = run_judge(judge(puzzle, Definition(), keep=keep, only_shown=True), lambda request: outcome)
    if verdict.status == "failed" and outcome.failure is None:
        return replace(verdict, message=f"Not correct. {verdict.message}")
    return verdict
