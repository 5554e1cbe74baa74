"""Runs a definition from a notebook in this process, in turns with a time limit; not isolated: for your own code.

A turn is what a rank does between two waits. The alarm raises in it, so that a loop that does not end costs the turn
and not the kernel; so does Ctrl-C, which a notebook would delay to the end of the turn. Tasks that the player's code
starts are limited too, and are ended when the run is over. The judge is the same as the grader's: it asks for runs, and
gets them from here. Rejected: a process for each run, which would lose the notebook's own definitions.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from lib import DeadlockError, PuzzleError
from puzzles.catalog.puzzle import Puzzle
from puzzles.failure import Failure, of_crash, of_refusal
from puzzles.judge.judge import Definition, judge
from puzzles.judge.verdict import Verdict
from puzzles.sandbox.limits import TimeLimitError, Timer
from puzzles.sandbox.worker.reading import Sketch, sketch
from puzzles.sandbox.worker.stages import UnplayableError
from puzzles.sandbox.worker.withheld import withheld_use
from puzzles.tracks import Track, track_for, track_of
from puzzles.tracks.free_play import FreeGame
from puzzles.tracks.outcomes import LocalRun, RunOutcome, RunRequest

from .display import FreeResult, file_of, first_line_of, place_of, tree_of

T = TypeVar("T")


class TurnStoppedError(Exception):
    """A turn was ended from outside: it took too long, or the player interrupted it."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


class LimitedTurns:
    """Everything that one run has on the event loop, apart from the ranks themselves."""

    def __init__(self, seconds: float) -> None:
        """`seconds` is the wall time of one turn."""
        self.seconds = seconds
        self.started: set[asyncio.Task[Any]] = set()
        """Tasks that the player's code has made."""
        self.over = False
        """True once a turn was ended from outside; after that there are no further turns."""

    def in_turns(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its call and each step of its coroutine as a turn."""

        def limited(*arguments: Any) -> Any:
            result = self.turn(lambda: function(*arguments))
            return Steps(result, self) if inspect.iscoroutine(result) else result

        return limited

    def turn(self, work: Callable[[], T]) -> T:
        """Returns what `work` returns. Ctrl-C interrupts it; a notebook would delay it to the end of the turn."""
        if self.over:
            raise DeadlockError("the play was stopped during another rank's turn")
        timer = Timer(self.seconds)
        try:
            with _interruptible(), self._own_tasks():
                return timer.run(work, in_greenlets=True)
        except TimeLimitError as why:
            self.over = True
            hint = "look for a loop that does not end, or allow more with play(..., seconds=60)"
            raise TurnStoppedError("timeout", f"time was up after {self.seconds:g} s; {hint}").with_traceback(
                why.__traceback__
            ) from None
        except KeyboardInterrupt as why:
            self.over = True
            raise TurnStoppedError("interrupted", "you interrupted it").with_traceback(why.__traceback__) from None

    @contextmanager
    def _own_tasks(self) -> Iterator[None]:
        """Records the tasks that are created during a turn, so that their turns are limited too."""
        loop = asyncio.get_running_loop()
        before = loop.get_task_factory()

        def start(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
            inner = Steps(coroutine, self) if inspect.iscoroutine(coroutine) else coroutine
            task: asyncio.Task[Any] = asyncio.Task(_awaited(inner), loop=loop, **options)
            self.started.add(task)
            return task

        loop.set_task_factory(start)
        try:
            yield
        finally:
            loop.set_task_factory(before)

    async def sweep(self) -> None:
        """Ends the tasks that the player's code has left running."""
        left = [task for task in self.started if not task.done()]
        for task in left:
            task.cancel()
        await asyncio.gather(*self.started, return_exceptions=True)


class Steps:
    """A coroutine of the player's, each step of which is a turn. It exposes the coroutine's attributes, so that `lib`
    finds its line."""

    def __init__(self, coroutine: Any, turns: LimitedTurns) -> None:
        self._coroutine = coroutine
        self._turns = turns

    def __await__(self) -> Steps:
        return self

    def __iter__(self) -> Steps:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        return self._turns.turn(lambda: self._coroutine.send(value))

    def throw(self, *error: Any) -> Any:
        return self._turns.turn(lambda: self._coroutine.throw(*error))

    def close(self) -> None:
        self._coroutine.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("cr_"):
            return getattr(self._coroutine, name)
        raise AttributeError(name)


async def _awaited(awaitable: Any) -> Any:
    return await awaitable


@contextmanager
def _interruptible() -> Iterator[None]:
    """Lets Ctrl-C raise KeyboardInterrupt immediately."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


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
    track, file = track_for(game), file_of(definition)
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
        words = f"play got an object of type {type(definition).__name__}, not the {track.words.noun} itself; {call}"
        if definition is None:
            words = f"play got the puzzle's name, but not your {track.words.noun}; {call}"
        return NotebookDefinition(problem=Failure("crash", words))
    if graded and (why := withheld_use(definition)):
        return NotebookDefinition(problem=Failure("rule", why, first_line_of(definition)))
    tree = tree_of(definition)
    return NotebookDefinition(sketch=Sketch() if tree is None else sketch(tree), line=first_line_of(definition))


async def run_once(track: Track[Any], slug: str, definition: Any, request: RunRequest, seconds: float) -> RunOutcome:
    turns = LimitedTurns(seconds)
    try:
        if request.own is not None:
            run = LocalRun(turns.turn(request.own))
        else:
            run = await track.judge.run_here(slug, definition, request, turns)
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
