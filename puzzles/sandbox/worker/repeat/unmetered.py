"""Refuses what no meter of a device counts: calls of the engine for observers, and numbers outside of arrays."""

import gc
import sys
from array import array
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import BuiltinFunctionType, CellType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

import lib.engine
from lib.engine import metering
from lib.engine.metering import block_of
from lib.errors import RuleError

_launch, _unmetered, _run_kernel = lib.engine.launch, lib.engine.unmetered, metering.run_kernel
_loading = [False]
"""True while a device is loading the file, when nothing belongs to its puzzle's calls."""


@contextmanager
def while_loading() -> Iterator[None]:
    """Marks that a device is loading the file: what a script tries out while it is loaded is charged to no device."""
    before, _loading[0] = metering.current.meter, True
    try:
        yield
    finally:
        metering.current.meter, _loading[0] = before, False


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
