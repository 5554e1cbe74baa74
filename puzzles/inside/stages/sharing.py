"""What all devices could see, because in one process they share it: data in the player's module and classes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .lists import numbers_in

DEEP = 4
"""Collections inside collections that are looked into."""

FEW = 16
"""Numbers that may come to be outside of arrays: a counter, a note or two."""


class Shared(NamedTuple):
    """What a name of a module or a class refers to: arrays, and how many numbers outside of arrays."""

    arrays: set[int]
    numbers: int

    def left(self, before: Shared) -> str:
        """What has come to be there, in words; empty if nothing has."""
        if not self.arrays <= before.arrays:
            return "an array was"
        return f"{self.numbers - before.numbers} numbers were" if self.numbers > before.numbers + FEW else ""


NOTHING = Shared(set(), 0)


def shared_by_all(cls: type) -> dict[str, Shared]:
    """By name, what the module of a class, and the classes written in it, refer to."""
    module = sys.modules.get(cls.__module__)
    names = vars(module) if module is not None else {}
    found: dict[str, Any] = {name: value for name, value in list(names.items()) if not isinstance(value, type)}
    for owner in {*cls.__mro__, *(value for value in list(names.values()) if isinstance(value, type))}:
        if owner.__module__ == cls.__module__:
            found |= {f"{owner.__name__}.{name}": value for name, value in list(vars(owner).items())}
    return {name: Shared(set(_arrays(value)), numbers_in(value)) for name, value in found.items()}


def _arrays(value: Any, deep: int = DEEP) -> Iterator[int]:
    if isinstance(value, np.ndarray):
        yield id(value)
    elif deep and type(value) in (list, tuple, set, dict):
        for part in value.values() if type(value) is dict else value:
            yield from _arrays(part, deep - 1)
