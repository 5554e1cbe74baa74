"""Engine puzzles in the worker: loads the file for each device, makes every call of a trial, and repeats recordings.

All devices run in the worker, whose memory they share. What they gain by that is no part of a recording, which is
repeated in another worker, on other values; see `engine_trial`.
"""

import os
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from types import ModuleType
from typing import Any

from lib import PuzzleError
from lib.engine import ShardedEngine
from lib.engine.metering import Meter, current, patched_numpy
from puzzles.failure import Failure, of_crash
from puzzles.sandbox.deadline import TimeLimitError
from puzzles.sandbox.plain_data import unpack
from puzzles.sandbox.worker.compiled import CompiledCode
from puzzles.sandbox.worker.repeat.integrity import EngineSnapshot
from puzzles.sandbox.worker.repeat.recorded_run import RecordingExecutor
from puzzles.sandbox.worker.repeat.unmetered import require_few_numbers, sizes_of_modules, while_loading
from puzzles.sandbox.worker.withheld import refusal_in_class, withhold

from .engine_trial import recorded, repeat, require_engine
from .stage import DefinitionSite, FailedError, StageResult, UnplayableError

__all__ = ["prepare", "repeat", "run_file"]

MODULE_NAME = "submission"

SNAPSHOT = EngineSnapshot()
"""Taken when this module is imported, before any player's code."""


def prepare(request: Mapping[str, Any]) -> dict[str, Any]:
    """Unpacks the trial: arguments, parameters and calls."""
    trial = unpack(request["trial"])
    assert isinstance(trial, dict)
    return trial


def run_file(
    code: CompiledCode, slug: str, trial: Mapping[str, Any], loaded: Callable[[], None]
) -> tuple[StageResult | None, str]:
    """Results, outputs, readings and recordings of one trial, and a remark on a forgotten coroutine; None instead if
    the file has no such class. Calls `loaded` when every device has loaded the file."""
    withhold(refusal_in_class)
    run = FileRun(code, slug)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            row = run.row(trial, loaded)
        except TimeLimitError:
            raise
        except BaseException as why:  # whatever a class raises ends its run
            return StageResult(failure=code.explained(run.failure_of(why), run.names)), ""
    forgotten = (str(w.message) for w in warned if str(w.message).endswith("was never awaited"))
    return None if row is None else StageResult(row), next(forgotten, "")


class FileRun:
    """One run of the class of a file. Each device has the file's module for itself, as in a process of its own."""

    def __init__(self, code: CompiledCode, slug: str) -> None:
        self.code, self.slug = code, slug
        self.start = code.lines.get(slug, 0)
        self.names: dict[str, Any] = {}
        """Of the module that was loaded last."""
        self.is_loaded = False

    def row(self, trial: Mapping[str, Any], loaded: Callable[[], None]) -> dict[str, Any] | None:
        def look(player: Any, device: int, method: str) -> None:
            try:
                require_few_numbers(player, device, sizes)
            except PuzzleError as why:
                why.line = getattr(getattr(getattr(player, method), "__code__", None), "co_firstlineno", 0)
                raise

        executor = RecordingExecutor(trial["devices"], **trial["options"], after_call=look)
        classes: list[type] = []
        for port in executor.scheduler.ports:
            assert port.meter is not None
            self._load(port.meter, aloud=not classes)
            if failure := self.code.failure_of(self.slug, self.names):
                raise FailedError(failure)
            if self.slug not in self.names:
                return None
            require_engine(self.slug, self.names[self.slug])
            classes.append(self.names[self.slug])
        self.is_loaded, sizes = True, sizes_of_modules()
        loaded()
        row = recorded(trial, executor, classes)
        self._require_unchanged()
        return row

    def _load(self, meter: Meter, aloud: bool) -> None:
        """Loads the file for a device; what it prints is shown once."""
        module = sys.modules[MODULE_NAME] = ModuleType(MODULE_NAME)
        module.__file__ = self.code.name
        self.names = vars(module)
        nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # closed with its own context
        with nowhere, redirect_stdout(sys.stdout if aloud else nowhere), patched_numpy(ShardedEngine, True):
            current.run_here()
            current.meter = meter
            with while_loading():
                exec(self.code.code, self.names)  # type: ignore[arg-type]  # checked when it was surveyed

    def _require_unchanged(self) -> None:
        if changed := SNAPSHOT.changed():
            raise FailedError(Failure("rule", f"{changed} was changed; leave the engine as it is", self.start))

    def failure_of(self, why: BaseException) -> Failure:
        """What the player is told: that the engine was changed, or a refusal or a crash at the player's line."""
        try:
            self._require_unchanged()
        except FailedError as changed:
            why = changed
        if isinstance(why, FailedError):
            return why.failure
        if not self.is_loaded and not isinstance(why, PuzzleError | UnplayableError):
            return of_crash(why, self.code.name, "while the file is loaded", 0)
        return DefinitionSite(self.code.name, self.start).failure_of(why)
