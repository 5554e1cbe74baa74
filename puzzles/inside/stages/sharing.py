"""What all devices could see, because in one process they share it: arrays in the player's module and classes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

DEEP = 4
"""Collections inside collections that are looked into."""


def arrays_of_all(cls: type) -> dict[str, set[int]]:
    """By name, the arrays that the module of a class, and the classes written in it, refer to."""
    module = sys.modules.get(cls.__module__)
    names = vars(module) if module is not None else {}
    found: dict[str, Any] = {name: value for name, value in list(names.items()) if not isinstance(value, type)}
    for owner in {*cls.__mro__, *(value for value in list(names.values()) if isinstance(value, type))}:
        if owner.__module__ == cls.__module__:
            found |= {f"{owner.__name__}.{name}": value for name, value in list(vars(owner).items())}
    return {name: set(_arrays(value)) for name, value in found.items()}


def _arrays(value: Any, deep: int = DEEP) -> Iterator[int]:
    if isinstance(value, np.ndarray):
        yield id(value)
    elif deep and type(value) in (list, tuple, set, dict):
        for part in value.values() if type(value) is dict else value:
            yield from _arrays(part, deep - 1)
