"""The Python that runs a player's code, and nothing else. What it says is not trusted: another one judges it.

While a run goes on, it tells the page what was printed and which line was reached. A line is sent as soon as it is
reached, since what it computes may never end; but only once in a slice of time, so that a loop is hardly slower. The
page ends this Python where it takes too long, so no limit of time is needed within it. What waits for nobody in a
browser, such as input, raises an error that names the remedy.
"""

import builtins
import linecache
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO, TextIOBase
from time import monotonic
from types import CodeType, ModuleType
from typing import Any, NoReturn

from lib import PuzzleError
from puzzles.failure import Failure, line_in, of_crash, of_refusal
from puzzles.player.display import file_of
from puzzles.player.local_run import known_of, run_once
from puzzles.sandbox.worker.reading import SubmissionCode
from puzzles.tracks import track_of
from puzzles.tracks.outcomes import RunOutcome

from .calls import Calls, RunRecord, add_custom_puzzles, answered

# --- Progress ---


MAX_PRINTED = 100_000
"""Characters of what the player's code prints that are sent to the page."""

CUT = "\n... and more, which is not shown"

SLICE = 0.2
"""Seconds after which a line is noted again, and between two messages on what is printed."""

TOOL = 4
"""Ours among the tools of `sys.monitoring`, whose numbers 0 to 2 and 5 are given."""


class Progress(TextIOBase):
    """Takes what is printed, and sends it with the line that runs."""

    def __init__(self, send: Callable[[str, int], object]) -> None:
        self._send, self._text, self._line, self._sent = send, "", 0, 0.0
        self._room = MAX_PRINTED

    def write(self, text: str) -> int:
        if self._room:
            kept = text[: self._room]
            self._room -= len(kept)
            self._text += kept if self._room else kept + CUT
            if monotonic() - self._sent > SLICE:
                self.send()
        return len(text)

    def send(self) -> None:
        """Sends what was not sent yet."""
        self._send(self._text, self._line)
        self._text, self._sent = "", monotonic()

    def follow(self, code: CodeType) -> None:
        """Notes the lines of a code, and of what it defines, from now on. Older Pythons than 3.12 cannot."""
        if sys.version_info >= (3, 12):
            watch = sys.monitoring
            if watch.get_tool(TOOL) is None:
                watch.use_tool_id(TOOL, "progress")
            watch.register_callback(TOOL, watch.events.LINE, self._reached)
            watch.register_callback(TOOL, watch.events.JUMP, self._jumped)
            for part in _parts(code):
                watch.set_local_events(TOOL, part, watch.events.LINE | watch.events.JUMP)

    def _reached(self, code: CodeType, line: int) -> Any:
        self._line = line
        self.send()
        return sys.monitoring.DISABLE  # type: ignore[attr-defined]  # from Python 3.12 on

    def _jumped(self, code: CodeType, begin: int, end: int) -> None:
        """A loop begins another round."""
        if monotonic() - self._sent > SLICE:
            sys.monitoring.restart_events()  # type: ignore[attr-defined]
            self.send()


def _parts(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _parts(constant)


# --- Runs ---


def _input(*given: object) -> NoReturn:
    raise RuntimeError("a run cannot ask for input; write the value into the code")


def _sleep(*given: object) -> NoReturn:
    raise RuntimeError("time.sleep does not move the clock of the game; remove it: operations take the time they cost")


def _leave(*given: object) -> NoReturn:
    sys.exit()


REPLACED: tuple[tuple[Any, str, Callable[..., NoReturn]], ...] = (
    (builtins, "input", _input),
    (time, "sleep", _sleep),
    (os, "_exit", _leave),
    (os, "abort", _leave),
)
"""Functions that would wait for nobody, or end Python itself."""

WORDS = (
    (
        r"\w*Error: No module named '([\w.]+)'.*",
        r"there is no \1 in the browser; use lib and Python's standard library",
    ),
    (r"\w+: can't start new thread.*", "a browser's Python has no threads; write one coroutine, which every rank runs"),
    (r"; a run may start few processes,.*", "; a browser's Python starts no processes"),
    (r"OSError: \[Errno 138\].*", "a browser's Python starts no processes; write one coroutine, which every rank runs"),
    (r"OSError: \[Errno 29\].*", "a browser's Python has no input; write the value into the code"),
)
"""Patterns in the text of an error, and what the page says instead."""


@contextmanager
def replaced() -> Iterator[None]:
    """While a player's code runs, the functions above raise errors that name the remedy."""
    saved = [(module, name, getattr(module, name)) for module, name, _ in REPLACED]
    for module, name, instead in REPLACED:
        setattr(module, name, instead)
    try:
        yield
    finally:
        for module, name, before in saved:
            setattr(module, name, before)


def in_words(failure: Failure | None) -> Failure | None:
    """The failure as the page says it: without advice that needs an installation or a command line."""
    if failure is None:
        return None
    sentence = failure.sentence
    for pattern, words in WORDS:
        sentence = re.sub(pattern, words, sentence)
    return failure._replace(sentence=sentence)


add_custom_puzzles()

FILE = "your_code.py"
SECONDS = 3600.0
"""Of a turn: the page ends this Python long before."""


def send(printed: str, line: int) -> None:
    """Tells the page of a run that goes on: what it has printed since the last time, and its line. In a worker this is
    the worker's function."""


async def run(slug: str, text: str) -> dict[str, Any]:
    """The record of all runs of the code for a puzzle, for the judge."""
    puzzle, progress = track_of(slug).puzzle(slug), Progress(send)
    with redirect_stdout(progress), replaced():
        definition = loaded(slug, text, progress)
        if isinstance(definition, Failure):
            record = RunRecord(problem=in_words(definition))
        else:
            track, outcomes = track_of(slug), list[RunOutcome]()
            known = known_of(track, slug, definition)
            for request in track.judge.requests(puzzle) if known.problem is None else ():
                outcomes.append(await run_once(track, slug, definition, request, SECONDS))
                if outcomes[0].failure is not None:
                    break  # the judge asks for no other size then
            outcomes = [one._replace(failure=in_words(one.failure)) for one in outcomes]
            record = RunRecord(known.problem, known.sketch, known.line, RunRecord.runs_of(track, outcomes))
            if file_of(definition) not in ("", FILE):
                record = record.without_lines()  # it was imported: the lines are in another file
    progress.send()
    return record.data()


def loaded(slug: str, text: str, progress: Progress) -> Any:
    """The definition of this name in a player's text, or the Failure to get it."""
    code = SubmissionCode(FILE, text, (slug,))
    problem = code.problem or code.broken.get(slug)
    if problem is not None or code.code is None:
        return problem
    linecache.cache[FILE] = len(text), None, StringIO(text, newline="").readlines(), FILE
    module = sys.modules["submission"] = ModuleType("submission")
    module.__file__ = FILE
    progress.follow(code.code)
    try:
        exec(code.code, module.__dict__)
    except PuzzleError as why:
        return of_refusal(why, line_in(why.__traceback__, FILE))
    except (Exception, SystemExit) as why:
        return of_crash(why, FILE, "while the code is loaded")
    if slug not in module.__dict__:
        starter = track_of(slug).puzzle(slug).starter
        waits = "async " if f"async def {slug}" in starter else ""
        words = f"write '{waits}{track_of(slug).words.signature(slug)}:', or go back to the starter"
        return Failure("crash", f"there is no {slug} in this code; {words}")
    return module.__dict__[slug]


CALLS: Calls = {"run": run}


async def answer(name: str, given: str) -> str:
    """The worker's only call."""
    return await answered(CALLS, name, given)
