"""Judges a player's file, puzzle by puzzle: what it defines is run, and the referee reads the trace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from lib import Report, Size, referee

from .catalog import PUZZLES, Puzzle
from .failure import Failure, of_refusal, of_source, plain
from .starters import size_text, untouched
from .submission import Submission
from .timer import TIME_LIMIT, Timer
from .trial import play
from .verdict import Graded, Verdict


def grade_file(path: str, puzzles: Iterable[Puzzle] = PUZZLES.values(), seconds: float = TIME_LIMIT) -> Graded:
    """The verdicts on one file; each puzzle is run by itself, so that none can spoil another's."""
    submission = Submission.read(Path(path))
    return Graded(path, tuple(grade(puzzle, submission, seconds) for puzzle in puzzles))


def grade(puzzle: Puzzle, submission: Submission, seconds: float = TIME_LIMIT) -> Verdict:
    """The verdict on one puzzle of a submission."""
    goal, slug = puzzle.goal, puzzle.slug
    nothing = Verdict(slug, "not_attempted", goal.time, goal.memory)
    if submission.problem is not None:
        return _failed(nothing, of_source(submission.problem), submission)
    if not submission.may_define(slug) or untouched(puzzle, submission.functions.get(slug)):
        return nothing
    timer = Timer(seconds)
    played = play(submission, slug, goal.size, timer)
    if played.failure is not None:
        return _failed(nothing, played.failure, submission)
    if played.trace is None:
        return nothing
    report = referee(played.trace, goal)
    if report.error is not None:
        failure = played.told(of_refusal(report.error, submission.start_of(slug)))
        return _failed(nothing, failure, submission)
    stars, notes = report.stars, [plain(note.text) for note in report.notes]
    if report.status == "passed":
        special = _only_here(puzzle, submission, timer)
        if special:
            stars, notes = min(stars, 2), [*notes, special]
    return replace(
        nothing,
        status=report.status,
        stars=stars,
        timesteps=report.timesteps,
        makespan=report.makespan,
        peak_memory=report.peak.memory,
        message="" if report.status == "passed" else _missed(report, puzzle),
        notes=tuple(notes),
    )


def _failed(nothing: Verdict, failure: Failure, submission: Submission) -> Verdict:
    """A failure, unless the file never says that it has a solution; then it is just told."""
    told = replace(nothing, message=failure.message, source=plain(submission.line(failure.line)))
    if not submission.defines(nothing.puzzle):
        return told
    return replace(told, status="failed", reason=failure.reason)


def _missed(report: Report, puzzle: Puzzle) -> str:
    goal = puzzle.goal
    missed = []
    if not report.meets_time:
        missed.append(f"it takes {report.timesteps:g} timesteps and the target is {goal.time}")
    if not report.meets_memory:
        peak = report.peak
        missed.append(
            f"it needs {peak.memory:,} elements of memory (rank {peak.rank} at t={peak.time:g}) "
            f"and the target is {goal.memory:,}"
        )
    return f"correct, but {'; and '.join(missed)}"


def _only_here(puzzle: Puzzle, submission: Submission, timer: Timer) -> str:
    """A note for the player if the schedule is wrong at another size; empty if it is right at all of them."""
    for size in puzzle.other_sizes:
        why = _problem_at(size, puzzle, submission, timer)
        if why:
            shown = size_text(puzzle.goal.size)
            return f"works only at the shown size ({shown}); with {size_text(size)} it fails: {why}"
    return ""


def _problem_at(size: Size, puzzle: Puzzle, submission: Submission, timer: Timer) -> str:
    played = play(submission, puzzle.slug, size, timer)
    failure = played.failure
    if failure is None and played.trace is not None:
        error = referee(played.trace, replace(puzzle.goal, size=size)).error
        failure = of_refusal(error) if error is not None else None
    return failure.message if failure is not None else ""
