"""Finds numbers that a device keeps outside of arrays that are counted: in collections, texts, closures, views."""

import gc
import sys
from array import array
from collections.abc import Iterator
from types import BuiltinFunctionType, CellType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from lib.engine.metering.arrays import block_of
from lib.errors import RuleError

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
