"""Detects changes to the engine's modules, and to the functions of numpy that it counts, by comparing identities."""

import sys
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from lib.engine.metering import STAND_INS

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
