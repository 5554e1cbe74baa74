"""Plays a function at its puzzle's size, on the loop that is running, and judges what it did."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import replace
from textwrap import dedent
from typing import Any

from lib import Outcome, PuzzleError, Size, referee, run_async
from puzzles.catalog.schedule import Puzzle
from puzzles.catalog.schedule.size_text import size_text
from puzzles.failure import of_crash, plain
from puzzles.grading.starters import untouched

from .interrupt import Ring, Stopped
from .result import Result
from .source_lines import Place, file_of, place_of


async def judge(puzzle: Puzzle, function: Any, seconds: float) -> Result:
    """The result of one play; whatever the function starts has ended with it."""
    unplayable = _unplayable(puzzle.slug, function)
    if unplayable:
        return Result(puzzle, "failed", reason="crash", message=unplayable)
    if untouched(puzzle, _definition(function)):
        return Result(puzzle, "not_attempted")
    outcome = await _run(function, puzzle.goal.size, seconds)
    if outcome.error is not None:
        return _stopped(puzzle, function, outcome, outcome.error)
    report = referee(outcome.trace, puzzle.goal)
    result = Result(puzzle, report.status, report.stars, report=report, trace=outcome.trace)
    if report.error is not None:
        place = Place(file_of(function), report.error.line)
        return replace(
            result, stars=0, reason=report.error.reason, message=plain(str(report.error)), place=place, report=None
        )
    notes = [plain(note.text) for note in report.notes]
    special = await _only_here(puzzle, function, seconds) if report.status == "passed" else ""
    if special:
        return replace(result, stars=min(report.stars, 2), notes=(*notes, special))
    return replace(result, notes=tuple(notes), message=_missed(result))


async def _run(function: Callable[..., Any], size: Size, seconds: float) -> Outcome:
    ring = Ring(function, seconds)
    try:
        return await run_async(ring.schedule, *size)
    finally:
        await ring.sweep()


def _stopped(puzzle: Puzzle, function: Any, outcome: Outcome, error: BaseException) -> Result:
    """A run that an exception ended, told without the machinery that it came through."""
    model = outcome.models[outcome.errors.index(error)]
    place = place_of(error, function)
    if isinstance(error, PuzzleError):
        reason, message = error.reason, plain(str(error))
    elif isinstance(error, Stopped):
        reason, message = error.reason, f"rank {model.rank}, t={model.time:g}: {error}"
    else:
        failure = of_crash(error, place.file, f"rank {model.rank}, t={model.time:g}", place.line)
        reason, message = failure.reason, failure.sentence
    return Result(puzzle, "failed", reason=reason, message=message, place=place, trace=outcome.trace)


def _unplayable(slug: str, function: Any) -> str:
    """What is wrong with something that cannot be a solution; empty if it can."""
    if not callable(function):
        if inspect.iscoroutine(function):
            function.close()
        return (
            f"play takes the function itself: play('{slug}', {slug}); got an object of type {type(function).__name__}"
        )
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return f"there is a 'yield' in {slug}, so calling it runs none of its lines; take it out"
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return f"{slug} is called with one argument, the model; write 'def {slug}(model):'"
    except ValueError:
        pass  # written in C: calling it will tell
    return ""


def _definition(function: Any) -> ast.AST | None:
    """The function as it is written, if that can be found."""
    try:
        return ast.parse(dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return None


def _missed(result: Result) -> str:
    report, goal = result.report, result.puzzle.goal
    if report is None or report.status == "passed":
        return ""
    missed = [] if report.meets_time else [f"it takes {report.timesteps:g} steps and the target is {goal.time}"]
    if not report.meets_memory:
        peak = report.peak
        place = f"rank {peak.rank} at t={peak.time:g}"
        missed.append(f"it needs {peak.memory:,} elements ({place}) and the target is {goal.memory:,}")
    return f"Every weight is right, but {', and '.join(missed)}."


async def _only_here(puzzle: Puzzle, function: Any, seconds: float) -> str:
    """A note for the player if the schedule is wrong at another size; empty if it is right at all of them."""
    for size in puzzle.other_sizes:
        outcome = await _run(function, size, seconds)
        error = outcome.error or referee(outcome.trace, replace(puzzle.goal, size=size)).error
        if error is not None:
            shown, why = size_text(puzzle.goal.size), plain(str(error) or type(error).__name__)
            return f"works only at the shown size ({shown}); with {size_text(size)} it fails: {why}"
    return ""
