"""Engine puzzles in the worker: loads the file for each device, makes every call of a trial, and repeats recordings.

All devices run in the worker, whose memory they share. What they gain by that is no part of a recording, which is
repeated in another worker, on other values; see `engine_trial`. Refused here is what would leave the recording without
a meaning: changes to the engine or to the functions of numpy that it counts (found by comparing identities), calls of
the engine that only observers may make, and numbers that a device keeps outside of arrays.

This module replaces functions of `lib.engine` when it is imported, so only a worker imports it.
"""

import gc
import os
import sys
import warnings
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from types import BuiltinFunctionType, CellType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

import lib.engine
from lib import PuzzleError
from lib.engine import ShardedEngine, metering
from lib.engine.metering import STAND_INS, Meter, block_of, current, patched_numpy
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

# --- Changes to the engine ---


PACKAGE = "lib.engine"

MUTABLE_NAMES = frozenset({"_depth", "_cache"})
"""Names that change while the engine runs."""


MISSING = object()


class EngineSnapshot:
    """Identity of every name of every module, every attribute of their classes, and the code of every function."""

    def __init__(self) -> None:
        self._modules = [name for name in sys.modules if name == PACKAGE or name.startswith(f"{PACKAGE}.")]
        self._was = _everything(self._modules)

    def changed(self) -> str:
        """Name of the first object that was replaced, added or removed since; empty if there is none."""
        now = _everything(self._modules)
        return next((name for name in {**self._was, **now} if self._was.get(name, MISSING) is not now.get(name)), "")


def _everything(modules: Iterable[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in modules:
        for key, value in list(vars(sys.modules[name]).items()):
            if key not in MUTABLE_NAMES and not key.startswith("__") and not isinstance(value, ModuleType):
                _note(found, f"{name}.{key}", value, name)
    for key in STAND_INS:
        found[f"numpy.{key}"] = vars(np).get(key)
    return found


def _note(found: dict[str, Any], name: str, value: Any, module: str) -> None:
    if isinstance(value, bool | int | float | str):
        return  # states and constants: nothing that is counted depends on them
    found[name] = value
    if isinstance(value, FunctionType):
        found[f"{name}.__code__"] = value.__code__
    elif isinstance(value, type) and value.__module__ == module:
        for key, attribute in list(vars(value).items()):
            # Python keeps the names of slots in a class once an object of it has been pickled.
            if not key.startswith(("__abstract", "_abc_", "__weakref__", "__dict__", "__slotnames__")):
                found[f"{name}.{key}"] = attribute
                if isinstance(attribute, FunctionType):
                    found[f"{name}.{key}.__code__"] = attribute.__code__


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


MAX_NUMBERS = 128
"""Numbers that an attribute may hold outside of arrays: sizes, indices, names of layers."""

OURS = ("lib", "puzzles", "drawing")

Sizes = dict[str, int]


def require_few_numbers(player: Any, number: int, before: Sizes) -> None:
    """Requires that a device keeps all but a few of its numbers in arrays: in self, its class, the class's module, and
    under names that modules did not have `before`.
    """
    for name, value in (*kept(player), *added(before)):
        found = numbers_in(value)
        if found > MAX_NUMBERS:
            raise RuleError(
                f"device {number} keeps {found:,} numbers in {name} outside of arrays, where no meter counts "
                "them; keep them in numpy arrays"
            )


def kept(player: Any) -> Iterator[tuple[str, Any]]:
    """Names and values that a device can reach: its attributes, its class's, and the module's."""
    cls = type(player)
    module = next((f.__globals__ for f in vars(cls).values() if isinstance(f, FunctionType)), {})
    for where, names in (("self.", vars(player)), (f"{cls.__name__}.", vars(cls)), ("", module)):
        yield from ((where + name, value) for name, value in list(names.items()) if not name.startswith("__"))


def sizes_of_modules() -> Sizes:
    """All modules that are loaded, with the number of their names."""
    return {name: len(vars(module)) for name, module in list(sys.modules.items()) if module is not None}


def added(before: Sizes) -> Iterator[tuple[str, Any]]:
    """The names that modules have more than `before`: new ones are the last."""
    for module, size in before.items():
        now = vars(sys.modules[module]) if sys.modules.get(module) is not None else {}
        if len(now) > size:
            yield from ((f"{module}.{name}", now[name]) for name in list(now)[size:])


def numbers_in(value: Any) -> int:
    """Counts numbers in everything that a value refers to; eight letters or bytes count as one, and so does each number
    of an array that is not charged to a device. What the game and Python itself have made is left out."""
    found, seen, waiting = 0, set[int](), [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, bool | int | float | complex | np.generic):
            found += 1
        elif isinstance(one, str | bytes | bytearray):
            found += len(one) // 8
        elif isinstance(one, array | memoryview):
            found += len(one)
        elif isinstance(one, np.ndarray):
            found += 0 if block_of(one) is not None else one.size
        elif id(one) not in seen:
            seen.add(id(one))
            waiting += _parts(one)
    return found


def _parts(one: Any) -> list[Any]:
    """What an object keeps, without what it was compiled from."""
    if isinstance(one, ModuleType | CodeType | FrameType | BuiltinFunctionType):
        return []
    if isinstance(one, FunctionType):
        return [*(one.__closure__ or ()), one.__defaults__, one.__kwdefaults__, vars(one)]
    if isinstance(one, MethodType):
        return [one.__func__, one.__self__]
    if isinstance(one, CellType | dict):
        return gc.get_referents(one)
    if isinstance(one, type):
        own = one.__module__.partition(".")[0].startswith("submission")
        return [value for name, value in list(vars(one).items()) if not name.startswith("__")] if own else []
    if type(one).__module__.partition(".")[0] in OURS:
        return []
    return [part for part in gc.get_referents(one) if part is not type(one)]


# --- The stage ---


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
        shown = redirect_stdout(sys.stdout if aloud else nowhere)
        with nowhere, shown, patched_numpy(ShardedEngine, True), loading(meter):
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
