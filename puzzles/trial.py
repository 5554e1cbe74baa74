"""Runs one function of a player's file at one size: a trace comes out, or the reason why there is none."""

from __future__ import annotations

import inspect
import io
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, NamedTuple

import lib
from lib import Outcome, PuzzleError, Size, Trace

from .failure import Failure, line_in, of_crash, of_refusal
from .submission import Submission
from .timer import Timer, TimeUp


class Played(NamedTuple):
    """A run. Its `trace` goes as far as the run went; all is None if the file has no such function."""

    trace: Trace | None = None
    failure: Failure | None = None
    forgotten: str = ""
    """What Python remarks about the player's own coroutine that was called without await, if there is one."""

    def told(self, failure: Failure) -> Failure:
        """The failure with that remark, which is likely to be its cause."""
        if not self.forgotten:
            return failure
        return failure._replace(sentence=f"{failure.sentence}; {self.forgotten}, so it did not run")


def play(submission: Submission, slug: str, size: Size, timer: Timer) -> Played:
    """Loads the file afresh and runs its function `slug` on every rank. What it prints goes to stderr."""
    if submission.stuck is not None:
        return Played(failure=submission.stuck)
    with submission.environment() as names, _apart(), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        failure = _load(submission, names, timer)
        if failure is not None:
            return Played(failure=failure)
        if slug not in names:
            return Played()
        trace, failure = _run(submission, slug, names[slug], size, timer)
    forgotten = (str(w.message) for w in warned if str(w.message).endswith("was never awaited"))
    played = Played(trace, failure, next(forgotten, ""))
    return played if failure is None else played._replace(failure=played.told(failure))


@contextmanager
def _apart() -> Iterator[None]:
    """Keeps the player's input and output away from the report's."""
    stdin, sys.stdin = sys.stdin, io.StringIO()
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdin = stdin


def _load(submission: Submission, names: dict[str, Any], timer: Timer) -> Failure | None:
    code, path = submission.code, str(submission.path)
    assert code is not None
    try:
        timer.run(lambda: exec(code, names))
    except TimeUp:
        submission.stuck = _too_slow(timer, timer.line_in(path), "while the file is loaded, ")
        return submission.stuck
    except PuzzleError as why:
        return of_refusal(why, line_in(why.__traceback__, path))
    except (Exception, SystemExit, GeneratorExit) as why:
        return of_crash(why, path, "while the file is loaded")
    return None


class Unplayable(Exception):
    """Something under a puzzle's name that cannot be its solution."""


def _run(
    submission: Submission, slug: str, function: Any, size: Size, timer: Timer
) -> tuple[Trace | None, Failure | None]:
    path = str(submission.path)
    start = submission.start_of(slug)

    def work() -> Outcome:
        _require_playable(slug, function)
        return lib.run(function, *size)

    try:
        outcome = timer.run(work)
    except TimeUp:
        return None, _too_slow(timer, timer.line_in(path) or start)
    except Unplayable as why:
        return None, Failure("crash", str(why), start)
    except (Exception, SystemExit, GeneratorExit) as why:
        return None, of_crash(why, path, otherwise=start)
    error = outcome.error
    if error is None:
        return outcome.trace, None
    if isinstance(error, PuzzleError):
        return outcome.trace, of_refusal(error, line_in(error.__traceback__, path) or start)
    model = outcome.models[outcome.errors.index(error)]
    return outcome.trace, of_crash(error, path, f"rank {model.rank}, t={model.time:g}", start)


def _require_playable(slug: str, function: Any) -> None:
    if not callable(function):
        raise Unplayable(f"{slug} is of type {type(function).__name__}, not a function; write 'def {slug}(model):'")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise Unplayable(f"there is a 'yield' in {slug}, so calling it runs none of its lines; take it out")
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise Unplayable(f"{slug} is called with one argument, the model; write 'def {slug}(model):'") from None
    except ValueError:
        return  # written in C: calling it will tell


def _too_slow(timer: Timer, line: int, when: str = "") -> Failure:
    sentence = (
        f"{when}time was up after {timer.seconds:g} s; "
        "look for a loop that does not end, or allow more with --time-limit"
    )
    return Failure("timeout", sentence, line)
