"""Runs a definition from a notebook in this process, for the judge; not isolated, so for your own code only."""

import inspect
from dataclasses import dataclass
from typing import Any

from lib import PuzzleError
from puzzles.catalog.puzzle import Puzzle
from puzzles.failure import Failure, of_crash, of_refusal
from puzzles.grading.judge import Definition, judge
from puzzles.grading.verdict import Verdict
from puzzles.sandbox.worker.sketch import Sketch, sketch
from puzzles.sandbox.worker.stages.stage import UnplayableError
from puzzles.sandbox.worker.withheld import withheld_use
from puzzles.tracks import Track, track_of
from puzzles.tracks.free_play import FreeGame, free_track
from puzzles.tracks.outcomes import LocalRun, RunOutcome, RunRequest

from .free_result import FreeResult
from .interrupt import LimitedTurns, TurnStoppedError
from .source_lines import file_of, first_line_of, place_of, tree_of


async def judge_here(puzzle: Puzzle, definition: Any, seconds: float) -> Verdict:
    """The verdict on a definition. Runs on the running event loop; whatever the runs start has ended when it returns.

    `seconds` is the wall time of one turn.
    """
    track = track_of(puzzle.slug)
    judging = judge(puzzle, known_of(track, puzzle.slug, definition), keep=True)
    outcome: RunOutcome | None = None
    while True:
        try:
            request = next(judging) if outcome is None else judging.send(outcome)
        except StopIteration as done:
            verdict: Verdict = done.value
            return verdict
        outcome = await run_once(track, puzzle.slug, definition, request, seconds)


async def play_freely(
    game: FreeGame, definition: Any, seconds: float, why: bool = False, colour: str = "layer"
) -> FreeResult:
    """The outcome of a schedule in a game without targets. Runs on the running event loop, as `judge_here` does."""
    track, file = free_track(), file_of(definition)
    problem = known_of(track, game.slug, definition, graded=False).problem
    if problem is not None:
        return FreeResult(game, failure=problem)
    outcome = await run_once(track, game.slug, definition, game.request(), seconds)
    judged = game.judged(outcome)
    if isinstance(judged, Failure):
        return FreeResult(game, (outcome.row or {}).get("trace"), failure=judged, file=file, colour=colour)
    return FreeResult(game, *judged, file=file, explains=why, colour=colour)


@dataclass(frozen=True)
class NotebookDefinition(Definition):
    """A definition in a cell. Its lines are shown next to the message, so the message does not repeat their numbers."""

    def message(self, failure: Failure) -> str:
        return failure.sentence


def known_of(track: Track[Any], slug: str, definition: Any, graded: bool = True) -> NotebookDefinition:
    """What the judge has to know about an object before running it. What is not graded may use all of lib."""
    if not callable(definition):
        if inspect.iscoroutine(definition):
            definition.close()
        call = f"write play('{slug}', {slug})"
        words = f"play got an object of type {type(definition).__name__}, not the {track.noun} itself; {call}"
        if definition is None:
            words = f"play got the puzzle's name, but not your {track.noun}; {call}"
        return NotebookDefinition(problem=Failure("crash", words))
    if graded and (why := withheld_use(definition)):
        return NotebookDefinition(problem=Failure("rule", why, first_line_of(definition)))
    tree = tree_of(definition)
    return NotebookDefinition(sketch=Sketch() if tree is None else sketch(tree), line=first_line_of(definition))


async def run_once(track: Track[Any], slug: str, definition: Any, request: RunRequest, seconds: float) -> RunOutcome:
    """One run of a definition on the running event loop."""
    turns = LimitedTurns(seconds)
    try:
        run = await track.run_here(slug, definition, request, turns)
    except (Exception, SystemExit) as error:
        run = LocalRun(error=error)
    finally:
        await turns.sweep()
    failure = run.failure if run.error is None else _failure(run, run.error, definition)
    if failure is not None and not failure.line:
        failure = failure._replace(line=first_line_of(definition), file=file_of(definition))
    return RunOutcome(run.row, failure)


def _failure(run: LocalRun, error: BaseException, definition: Any) -> Failure:
    """The failure for an exception that ended a run, without the runtime's own frames."""
    place = place_of(error, definition)
    if isinstance(error, UnplayableError):
        return Failure("crash", str(error), place.line, place.file)
    if isinstance(error, TurnStoppedError):
        prefix = f"{run.prefix}: " if run.prefix else ""
        return Failure(error.reason, f"{prefix}{error}", place.line, place.file)
    if isinstance(error, PuzzleError):
        return of_refusal(error)._replace(line=place.line, file=place.file)
    prefix = "; ".join(filter(None, [run.prefix, *getattr(error, "__notes__", [])]))
    return of_crash(error, place.file, prefix, place.line)._replace(file=place.file)
