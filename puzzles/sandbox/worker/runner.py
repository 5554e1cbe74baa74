"""One run of one definition of a player's file, in the worker: loads the file, runs it, sends the result."""

import _sitebuiltins
import builtins
import json
import os
import sys
import threading
import warnings
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

from lib import PuzzleError
from puzzles.failure import Failure, line_in, of_crash, of_refusal
from puzzles.sandbox import protocol
from puzzles.sandbox.limits import TimeLimitError, Timer

from . import os_limits
from .reading import CompiledCode, SubmissionCode
from .stages import DefinitionSite, StageResult, forgotten_in, stage_of
from .withheld import WITHHELD, refusal_of, withhold

MODULE_NAME = "submission"
"""Name of the file's module while it runs; not `__main__`, so that a script's own `if __name__` stays inactive."""


HIDDEN_MODULES = ("solutions", "tests", "notebooks", "puzzles.catalog.engine", "puzzles.content.engine")
"""Modules that a submission cannot import: answers, and the trials of classes with their right results."""


def set_up_interpreter(packages: str) -> None:
    """Provides third-party packages, `exit` and unbuffered streams, and makes imports of hidden modules fail."""
    for name in ("exit", "quit"):
        setattr(builtins, name, _sitebuiltins.Quitter(name, "Ctrl-D"))
    threading.Thread.start = _refuse_thread  # type: ignore[assignment, method-assign]  # says more than the kernel's refusal
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115  # as long as the process
    for fd, name in ((1, "stdout"), (2, "stderr")):
        stream = open(fd, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    if packages and packages not in sys.path:
        sys.path.append(packages)
    for name in HIDDEN_MODULES:
        sys.modules[name] = None  # type: ignore[assignment]  # which makes an import of it fail


def _refuse_thread(_: threading.Thread) -> None:
    raise RuntimeError("a run may start no thread; compute in the function itself")


def disable_play() -> None:
    """Makes `play` do nothing in this process: in a file that is graded, the judge runs and judges all definitions."""
    vars(sys.modules["puzzles"])["play"] = lambda *_, **__: None


class DefinitionRun:
    """One run. Its result goes to the file descriptor `out`, one row of JSON; the last row counts."""

    def __init__(self, code: CompiledCode, request: Mapping[str, Any], seconds: float, out: int) -> None:
        self.code = code
        self.slug = request["slug"]
        self.graded = request.get("graded", False)
        self.stage: Any = stage_of(request["stage"])
        self.prepared = self.stage.prepare(request)
        self.recordings = request.get("recordings")
        """Of an earlier run: what is repeated instead of the file."""
        self.out = out
        self.phase = "while the file is loaded, "
        self.start = code.lines.get(self.slug, 0)
        describe = getattr(self.stage, "work_of", lambda frame: "")
        self.timer = Timer(seconds, request["left"], lambda: self._send(self._too_slow()), describe)

    def run(self) -> None:
        """Loads the file, runs the definition and sends the result."""
        disable_play()
        if self.recordings is not None or hasattr(self.stage, "run_file"):
            return self._run_on_engine()
        if self.graded:
            withhold(refusal_of, WITHHELD)
        module = self._module(MODULE_NAME)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            failure = self._load(module.__dict__) or self.code.failure_of(self.slug, module.__dict__)
            if failure is None and self.slug not in module.__dict__:
                return self._send(StageResult(), defined=False)
            result = StageResult(failure=failure)
            if failure is None:
                self.phase = ""
                result = self._run_definition(module.__dict__[self.slug])
            if result.failure is not None:
                result = replace(result, failure=self.code.explained(result.failure, module.__dict__))
        self._send(result, forgotten_in(warned))

    def _run_on_engine(self) -> None:
        """The same for a stage that loads the file itself, or repeats a recording, for which nothing is loaded."""

        def loaded() -> None:
            self.phase = ""

        def work() -> tuple[StageResult | None, str]:
            if self.recordings is not None:
                return StageResult(self.stage.repeat(self.recordings, self.prepared)), ""
            return self.stage.run_file(self.code, self.slug, self.prepared, loaded)  # type: ignore[no-any-return]

        try:
            result, forgotten = self.timer.run(work, True)
        except TimeLimitError:
            result, forgotten = self._too_slow(), ""
        except PuzzleError as why:
            result, forgotten = StageResult(failure=of_refusal(why, self.start)), ""
        self._send(result or StageResult(), forgotten, defined=result is not None)

    def _module(self, name: str) -> ModuleType:
        """An empty module for the file, registered under its name."""
        module = sys.modules[name] = ModuleType(name)
        module.__file__ = self.code.name
        return module

    def _send(self, result: StageResult, forgotten: str = "", defined: bool = True) -> None:
        failure = None if result.failure is None else list(result.failure)
        row = {"defined": defined, "failure": failure, "forgotten": forgotten, **result.data}
        protocol.write_all(self.out, json.dumps(row).encode() + b"\n")

    def _load(self, names: dict[str, Any]) -> Failure | None:
        code = self.code.code
        assert code is not None
        try:
            self.timer.run(lambda: exec(code, names))
        except TimeLimitError:
            return self._too_slow().failure
        except PuzzleError as why:
            return of_refusal(why, line_in(why.__traceback__, self.code.name))
        except (Exception, SystemExit, GeneratorExit) as why:
            return of_crash(why, self.code.name, "while the file is loaded")
        return None

    def _run_definition(self, definition: Any) -> StageResult:
        site = DefinitionSite(self.code.name, self.start)

        def work() -> StageResult:
            result: StageResult = self.stage.run_definition(self.slug, definition, self.prepared, site)
            return result

        try:
            return self.timer.run(work)
        except TimeLimitError:
            return self._too_slow()
        except (Exception, SystemExit, GeneratorExit) as why:
            return StageResult(failure=site.failure_of(why))

    def _too_slow(self) -> StageResult:
        line = self.timer.line_in(self.code.name) or (0 if self.phase else self.start)
        during = f"{self.timer.work_at}: " if self.timer.work_at else self.phase
        return StageResult(failure=Failure("timeout", too_slow(self.timer.seconds, during), line))


def too_slow(seconds: float, phase: str = "") -> str:
    """The sentence for a run that exceeded its time; `phase` says during what, if not during the run itself."""
    advice = "look for a loop that does not end, or raise the time limit"
    return f"{phase}time was up after {seconds:g} s; {advice}"


# --- One survey or one run by a process that was started for it alone, where nothing can fork ---
#
# What the run sends goes to the output of the process, what the player's code prints to its error stream. Only an audit
# hook protects the hidden files here: the grader limits time and output, and ends the process.


def main() -> None:
    """Answers the one message on its input."""
    given = protocol.receive(os.fdopen(os.dup(0), "rb", buffering=0))
    out = os.dup(1)
    os.dup2(2, 1)
    if given is None:
        return
    code = SubmissionCode(given["name"], given["text"], given["slugs"])
    request = given["request"]
    if request is None:
        os.write(out, json.dumps(code.survey()).encode())
        return
    set_up_interpreter(given["packages"])
    os_limits.deny_paths(given["hidden"])
    run = DefinitionRun(code.compiled, request, given["limits"]["seconds"], out)
    os.write(out, b"\n")  # from here on, the client counts seconds
    run.run()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)
