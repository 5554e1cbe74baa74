"""Engine puzzles in the worker: loads the file for each device, makes every call of a trial, and repeats recordings.

All devices run in the worker, whose memory they share. What they gain by that is no part of a recording, which is
repeated in another worker, on other values; see `engine_trial`. Refused here are calls of the engine that only
observers may make.

Rejected: comparing the identity of everything in the engine after a run, and counting the numbers that a device keeps
outside of arrays. No figure depends on either. A changed engine runs in this worker only, and what was kept outside of
arrays has no place in a recording, so the figures of a class that uses it are unknown.

This module replaces functions of `lib.engine` when it is imported, so only a worker imports it.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from types import ModuleType
from typing import Any

import lib.engine
from lib import PuzzleError
from lib.engine import ShardedEngine, metering
from lib.engine.metering import Meter, current, patched_numpy
from lib.errors import RuleError
from puzzles.failure import Failure, of_crash
from puzzles.sandbox.limits import TimeLimitError
from puzzles.sandbox.plain_data import unpack
from puzzles.sandbox.worker.reading import CompiledCode
from puzzles.sandbox.worker.recording import RecordingExecutor
from puzzles.sandbox.worker.runner import MODULE_NAME
from puzzles.sandbox.worker.withheld import refusal_in_class, withhold

from . import DefinitionSite, FailedError, StageResult, UnplayableError, forgotten_in
from .engine_trial import recorded, require_engine
from .engine_trial import repeat as repeat

# --- What no meter counts ---


_launch, _unmetered, _run_kernel = lib.engine.launch, lib.engine.unmetered, metering.run_kernel
_loading = [False]
"""True while a device is loading the file, when nothing belongs to its puzzle's calls."""


@contextmanager
def loading(meter: Meter) -> Iterator[None]:
    """The file is loaded for the device of a meter: what a script tries out meanwhile is charged to no device."""
    current.run_here()
    current.meter, _loading[0] = meter, True
    try:
        yield
    finally:
        current.meter, _loading[0] = None, False


def launch(*args: Any, **kwargs: Any) -> Any:
    """`lib.engine.launch`, but refused to devices, because their meters do not count what happens in it."""
    if metering.current.meter is not None and not _loading[0]:
        raise RuleError("a device cannot launch devices of its own; it must compute everything itself")
    return _launch(*args, **kwargs)


def unmetered() -> AbstractContextManager[None]:
    """`lib.engine.unmetered`, for the engine's own code only."""
    if not _is_called_by_lib():
        raise RuleError("unmetered() is for observers; everything that a device does is counted")
    return _unmetered()


def run_kernel(*args: Any, **kwargs: Any) -> Any:
    """`run_kernel`, for programs of layouts only."""
    if not _is_called_by_lib():
        raise RuleError("run_kernel() is for programs of layouts, which are compiled; a device's own code is counted")
    return _run_kernel(*args, **kwargs)


def _is_called_by_lib() -> bool:
    return str(sys._getframe(2).f_globals.get("__name__", "")).startswith("lib.")


lib.engine.launch = launch
metering.run_kernel = run_kernel
lib.engine.unmetered = metering.unmetered = unmetered  # type: ignore[assignment]


# --- The stage ---


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
    return None if row is None else StageResult(row), forgotten_in(warned)


class FileRun:
    """One run of the class of a file. Each device has the file's module for itself, as in a process of its own."""

    def __init__(self, code: CompiledCode, slug: str) -> None:
        self.code, self.slug = code, slug
        self.start = code.lines.get(slug, 0)
        self.names: dict[str, Any] = {}
        """Of the module that was loaded last."""
        self.is_loaded = False

    def row(self, trial: Mapping[str, Any], loaded: Callable[[], None]) -> dict[str, Any] | None:
        executor = RecordingExecutor(trial["devices"], **trial["options"])
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
        self.is_loaded = True
        loaded()
        return recorded(trial, executor, classes)

    def _load(self, meter: Meter, aloud: bool) -> None:
        """Loads the file for a device; what it prints is shown once."""
        module = sys.modules[MODULE_NAME] = ModuleType(MODULE_NAME)
        module.__file__ = self.code.name
        self.names = vars(module)
        nowhere = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # closed with its own context
        shown = redirect_stdout(sys.stdout if aloud else nowhere)
        with nowhere, shown, patched_numpy(ShardedEngine, True), loading(meter):
            exec(self.code.code, self.names)  # type: ignore[arg-type]  # checked when it was surveyed

    def failure_of(self, why: BaseException) -> Failure:
        """What the player is told: a refusal or a crash at the player's line."""
        if isinstance(why, FailedError):
            return why.failure
        if not self.is_loaded and not isinstance(why, PuzzleError | UnplayableError):
            return of_crash(why, self.code.name, "while the file is loaded", 0)
        return DefinitionSite(self.code.name, self.start).failure_of(why)
