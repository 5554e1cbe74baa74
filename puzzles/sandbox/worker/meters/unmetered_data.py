"""Finds numbers that a device keeps in Python collections, where no meter counts them."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import numpy as np

from lib.engine.launcher import Run
from lib.errors import RuleError

MAX_NUMBERS = 128
"""Numbers that an attribute may hold outside of arrays: sizes, indices, names of layers."""


def require_arrays(run: Run) -> None:
    """Requires that devices in this process keep all but a few of their numbers in arrays: in self, class and module.

    Raises:
        RuleError: naming the device and where.
    """
    for number, device in enumerate(getattr(run._executor, "devices", ())):
        require_few_numbers(device.player, number)


def require_few_numbers(player: Any, number: int) -> None:
    """The same of one device.

    Raises:
        RuleError: naming the device and where.
    """
    for name, value in kept(player):
        found = numbers_in(value)
        if found > MAX_NUMBERS:
            raise RuleError(
                f"device {number} keeps {found:,} numbers in {name} outside of arrays, where no meter counts "
                "them; keep them in numpy arrays"
            )


def kept(player: Any) -> Iterator[tuple[str, Any]]:
    """Names and values that a device can reach: its attributes, its class's, and those of the module."""
    cls = type(player)
    module = next((f.__globals__ for f in vars(cls).values() if isinstance(f, FunctionType)), {})
    for where, names in (("self.", vars(player)), (f"{cls.__name__}.", vars(cls)), ("", module)):
        yield from ((where + name, value) for name, value in list(names.items()) if not name.startswith("__"))


def numbers_in(value: Any) -> int:
    """Counts numbers in nested collections; eight letters or bytes count as one."""
    found, seen, waiting = 0, set[int](), [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, bool | int | float | complex | np.generic):
            found += 1
        elif isinstance(one, str | bytes | bytearray):
            found += len(one) // 8
        elif isinstance(one, array | memoryview):
            found += len(one)
        elif isinstance(one, list | tuple | set | frozenset | dict | deque) and id(one) not in seen:
            seen.add(id(one))
            waiting += [*one, *one.values()] if isinstance(one, dict) else [*one]
    return found
