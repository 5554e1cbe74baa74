"""Runs one function of a player's file at one size, in the child: it tells a trace, or why there is none."""

from __future__ import annotations

import inspect
import json
import os
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import lib
from lib import Outcome, PuzzleError, Size, trace_to_json

from .failure import Failure, line_in, of_crash, of_refusal
from .source import Source
from .timer import Timer, TimeUp

MODULE = "submission"
"""What the file is called while it runs; not `__main__`, so that what stands under that name stays asleep."""


class Unplayable(Exception):
    """Something under a puzzle's name that cannot be its solution."""


class Performance:
    """One run. Its result goes to the file descriptor `out`, one row of JSON; the last row counts."""

    def __init__(self, source: Source, slug: str, size: Size, seconds: float, left: float, out: int) -> None:
        self.source = source
        self.slug = slug
        self.size = size
        self.out = out
        self.when = "while the file is loaded, "
        self.start = source.lines.get(slug, 0)
        self.timer = Timer(seconds, left, lambda: self._tell(failure=self._too_slow()))

    def run(self) -> None:
        """Loads the file and runs its function on every rank; tells the result."""
        module = ModuleType(MODULE)
        module.__file__ = self.source.name
        sys.modules[MODULE] = module
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            failure = self._load(module.__dict__)
            if failure is None and self.slug not in module.__dict__:
                return self._tell(defined=False)
            trace = None
            if failure is None:
                self.when = ""
                trace, failure = self._play(module.__dict__[self.slug])
        forgotten = [str(w.message) for w in warned if str(w.message).endswith("was never awaited")]
        self._tell(trace, failure, forgotten[0] if forgotten else "")

    def _tell(
        self, trace: lib.Trace | None = None, failure: Failure | None = None, forgotten: str = "", defined: bool = True
    ) -> None:
        row = {
            "defined": defined,
            "failure": None if failure is None else list(failure),
            "forgotten": forgotten,
            "trace": None if trace is None else trace_to_json(trace),
        }
        text = json.dumps(row).encode() + b"\n"
        while text:
            text = text[os.write(self.out, text) :]

    def _load(self, names: dict[str, Any]) -> Failure | None:
        code = self.source.code
        assert code is not None
        try:
            self.timer.run(lambda: exec(code, names))
        except TimeUp:
            return self._too_slow()
        except PuzzleError as why:
            return of_refusal(why, line_in(why.__traceback__, self.source.name))
        except (Exception, SystemExit, GeneratorExit) as why:
            return of_crash(why, self.source.name, "while the file is loaded")
        return None

    def _play(self, function: Any) -> tuple[lib.Trace | None, Failure | None]:
        name, start = self.source.name, self.start

        def work() -> Outcome:
            _require_playable(self.slug, function)
            return lib.run(function, *self.size)

        try:
            outcome = self.timer.run(work)
        except TimeUp:
            return None, self._too_slow()
        except Unplayable as why:
            return None, Failure("crash", str(why), start)
        except (Exception, SystemExit, GeneratorExit) as why:
            return None, of_crash(why, name, otherwise=start)
        error = outcome.error
        if error is None:
            return outcome.trace, None
        if isinstance(error, PuzzleError):
            return outcome.trace, of_refusal(error, line_in(error.__traceback__, name) or start)
        model = outcome.models[outcome.errors.index(error)]
        return outcome.trace, of_crash(error, name, f"rank {model.rank}, t={model.time:g}", start)

    def _too_slow(self) -> Failure:
        line = self.timer.line_in(self.source.name) or (0 if self.when else self.start)
        return Failure("timeout", too_slow(self.timer.seconds, self.when), line)


def too_slow(seconds: float, when: str = "") -> str:
    advice = "look for a loop that does not end, or allow more with --time-limit"
    return f"{when}time was up after {seconds:g} s; {advice}"


def _require_playable(slug: str, function: Callable[..., Any]) -> None:
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
