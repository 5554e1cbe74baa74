"""While a metered run is on: numpy's functions that make arrays, or multiply matrices, count what they do.

Only code of a device is counted; for all others (`current.meter` is None) these are the functions as they were.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from . import flops
from .arrays import charged, is_view, product, same_memory
from .meter import current

MAKERS = (
    "zeros ones empty full array asarray ascontiguousarray asfortranarray copy arange linspace eye identity tri "
    "diag frombuffer fromiter fromfunction indices zeros_like ones_like empty_like full_like require"
).split()
"""Functions whose result can be a new plain array although no counted one is among the arguments."""


def _maker(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def make(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if current.meter is None or any(result is arg for arg in args):
            return result
        given: Any = args[0] if args else kwargs.get("a")
        return same_memory(result, given) if is_view(result, given) else charged(result)

    return make


def _multiplier(function: Callable[..., Any], count: Any) -> Callable[..., Any]:
    @functools.wraps(function)
    def multiply(*args: Any, **kwargs: Any) -> Any:
        if current.meter is None:
            return function(*args, **kwargs)
        return product(function, count, args, kwargs)

    return multiply


class Drawing(np.random.Generator):
    """A generator whose arrays are the device's own, like all that it makes."""

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return _maker(found) if callable(found) and not name.startswith("_") else found


def _default_rng(seed: Any = None) -> np.random.Generator:
    meter, current.meter = current.meter, None  # what seeding needs is not the device's
    try:
        generator = _RNG(seed)
    finally:
        current.meter = meter
    return generator if meter is None else Drawing(generator.bit_generator)


_RNG = np.random.default_rng

DRAWN = {
    **{
        name: (function, _maker(function))
        for name, function in vars(np.random).items()
        if getattr(function, "__self__", None).__class__ is np.random.RandomState and not name.endswith("_state")
    },
    "default_rng": (_RNG, _default_rng),
}
"""The same for numpy.random."""

STAND_INS = {
    **{name: (getattr(np, name), _maker(getattr(np, name))) for name in MAKERS},
    **{f.__name__: (f, _multiplier(f, count)) for f, count in {**flops.FUNCTIONS, **flops.UFUNCS}.items()},
}
"""By name in numpy: the function, and what stands in for it."""

_depth = 0


@contextmanager
def watching(cls: type, metered: bool) -> Iterator[None]:
    """Within: numpy's functions count, also those that the module of a player's class has imported by name."""
    global _depth
    if not metered:
        yield
        return
    _depth += 1
    if _depth == 1:
        _exchange(0, 1)
    imported = _modules_of(cls)
    for names in imported:
        _exchange_imported(names, 0, 1)
    try:
        yield
    finally:
        _depth -= 1
        for names in imported:
            _exchange_imported(names, 1, 0)
        if not _depth:
            _exchange(1, 0)


def _exchange(old: int, new: int) -> None:
    for names, stand_ins in ((vars(np), STAND_INS), (vars(np.random), DRAWN)):
        for name, pair in stand_ins.items():
            if names.get(name) is pair[old]:
                names[name] = pair[new]


def _exchange_imported(names: dict[str, Any], old: int, new: int) -> None:
    by_id = {id(pair[old]): pair[new] for pair in (*STAND_INS.values(), *DRAWN.values())}
    for name, value in list(names.items()):
        if id(value) in by_id:
            names[name] = by_id[id(value)]


def _modules_of(cls: type) -> list[dict[str, Any]]:
    """The global names of the modules that a class and its ancestors are written in, but not ours or Python's."""
    found: dict[int, dict[str, Any]] = {}
    for ancestor in cls.__mro__:
        if ancestor.__module__.startswith("lib.engine.") or ancestor.__module__ in sys.stdlib_module_names:
            continue
        for function in vars(ancestor).values():
            names = getattr(function, "__globals__", None)
            if names is not None:
                found[id(names)] = names
    return list(found.values())
