"""One run of one definition of a player's file, in the child: it tells what came of it, or why nothing did."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Mapping
from contextlib import redirect_stdout
from importlib import import_module
from types import ModuleType
from typing import Any

from lib import PuzzleError
from puzzles.failure import Failure, line_in, of_crash, of_refusal
from puzzles.sandbox.deadline import Timer, TimeUp
from puzzles.sandbox.worker.stages.stage import Place, Told, Unplayable

from .source import Source

MODULE = "submission"
"""What the file is called while it runs; not `__main__`, so that what stands under that name stays asleep."""


def stage_of(module: str) -> Any:
    """The module that runs a track's definitions, by its dotted name."""
    return import_module(module)


class Performance:
    """One run. Its result goes to the file descriptor `out`, one row of JSON; the last row counts."""

    def __init__(self, source: Source, request: Mapping[str, Any], seconds: float, out: int) -> None:
        self.source = source
        self.slug = request["slug"]
        self.stage = stage_of(request["stage"])
        self.prepared = self.stage.prepare(request)
        self.out = out
        self.when = "while the file is loaded, "
        self.start = source.lines.get(self.slug, 0)
        self.timer = Timer(seconds, request["left"], lambda: self._tell(Told(failure=self._too_slow())))

    def run(self) -> None:
        """Loads the file and plays the definition; tells the result."""
        module = self._module(MODULE)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            failure = self._load(module.__dict__)
            if failure is None and self.slug not in module.__dict__:
                return self._tell(Told(), defined=False)
            told = Told(failure=failure)
            if failure is None:
                self.when = ""
                told = self._play(module.__dict__[self.slug])
        forgotten = [str(w.message) for w in warned if str(w.message).endswith("was never awaited")]
        self._tell(told, forgotten[0] if forgotten else "")

    def _module(self, name: str) -> ModuleType:
        """An empty one for the file, to be found under its name."""
        module = sys.modules[name] = ModuleType(name)
        module.__file__ = self.source.name
        return module

    def _again(self, number: int) -> Any:
        """The definition of the file loaded once more, as a module of its own; what that prints was printed before."""
        assert self.source.code is not None
        sys.modules.pop(MODULE, None)
        module = self._module(f"{MODULE}_{number}")
        with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
            exec(self.source.code, module.__dict__)
        return module.__dict__[self.slug]

    def _tell(self, told: Told, forgotten: str = "", defined: bool = True) -> None:
        failure = None if told.failure is None else list(told.failure)
        row = {"defined": defined, "failure": failure, "forgotten": forgotten, **told.data}
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

    def _play(self, definition: Any) -> Told:
        place = Place(self.source.name, self.start, self._again)
        try:
            return self.timer.run(lambda: self.stage.run_definition(self.slug, definition, self.prepared, place))  # type: ignore[no-any-return]
        except TimeUp:
            return Told(failure=self._too_slow())
        except Unplayable as why:
            return Told(failure=Failure("crash", str(why), place.line))
        except PuzzleError as why:
            return Told(failure=of_refusal(why, line_in(why.__traceback__, place.file) or place.line))
        except (Exception, SystemExit, GeneratorExit) as why:
            return Told(failure=of_crash(why, place.file, "; ".join(getattr(why, "__notes__", [])), place.line))

    def _too_slow(self) -> Failure:
        line = self.timer.line_in(self.source.name) or (0 if self.when else self.start)
        return Failure("timeout", too_slow(self.timer.seconds, self.when), line)


def too_slow(seconds: float, when: str = "") -> str:
    advice = "look for a loop that does not end, or allow more with --time-limit"
    return f"{when}time was up after {seconds:g} s; {advice}"
