"""Patches numpy constructors and matmuls during a metered run to count memory and flops.

Only the code of a device is counted. For all other code (`current.meter` is None), the wrappers just call the original
function.
"""

import functools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from . import flops
from .arrays import charge_results, is_stripped_view, metered_product, restore_block
from .meter import current

CONSTRUCTORS = (
    "zeros ones empty full array asarray ascontiguousarray asfortranarray copy arange linspace eye identity tri "
    "diag frombuffer fromiter fromfunction indices zeros_like ones_like empty_like full_like require"
).split()
"""Functions whose result can be a new plain array even if no argument is metered."""


def _charging(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def make(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if current.meter is None or any(result is arg for arg in args):
            return result
        given: Any = args[0] if args else kwargs.get("a")
        return restore_block(result, given) if is_stripped_view(result, given) else charge_results(result)

    return make


def _counting(function: Callable[..., Any], count: Any) -> Callable[..., Any]:
    """The wrapper of a function that multiplies matrices; `count` is the rule for its flops."""

    @functools.wraps(function)
    def multiply(*args: Any, **kwargs: Any) -> Any:
        if current.meter is None:
            return function(*args, **kwargs)
        return metered_product(function, count, args, kwargs)

    return multiply


class MeteredGenerator(np.random.Generator):
    """A random generator whose arrays are charged to the device."""

    def __getattribute__(self, name: str) -> Any:
        attribute = super().__getattribute__(name)
        return _charging(attribute) if callable(attribute) and not name.startswith("_") else attribute


def _default_rng(seed: Any = None) -> np.random.Generator:
    meter, current.meter = current.meter, None  # memory used for seeding is not the device's
    try:
        generator = _RNG(seed)
    finally:
        current.meter = meter
    return generator if meter is None else MeteredGenerator(generator.bit_generator)


_RNG = np.random.default_rng

RANDOM_STAND_INS = {
    **{
        name: (function, _charging(function))
        for name, function in vars(np.random).items()
        if getattr(function, "__self__", None).__class__ is np.random.RandomState and not name.endswith("_state")
    },
    "default_rng": (_RNG, _default_rng),
}
"""By name in numpy.random: the function, and its wrapper."""

STAND_INS = {
    **{name: (getattr(np, name), _charging(getattr(np, name))) for name in CONSTRUCTORS},
    **{f.__name__: (f, _counting(f, count)) for f, count in flops.FLOPS_OF_NAMED.items()},
    **{f.__name__: (f, _counting(f, count)) for f, count in flops.FLOPS_OF_MATMUL.items()},
}
"""By name in numpy: the function, and its wrapper."""

_depths: Counter[int] = Counter()
"""The number of open contexts, by the id of the module's globals; numpy's own globals are in every context."""

_lock = threading.Lock()
"""Held while names are swapped, because runs in several threads have separate contexts."""


@contextmanager
def patched_numpy(cls: type, metered: bool) -> Iterator[None]:
    """A context in which numpy's functions count, even where the module of a player's class has imported them by name.
    Contexts nest, and may be open in several threads. Without `metered` this does nothing."""
    if not metered:
        yield
        return
    modules = [vars(np), *_modules_of(cls)]
    _open_or_close(modules, +1)
    try:
        yield
    finally:
        _open_or_close(modules, -1)


def _open_or_close(modules: Sequence[dict[str, Any]], change: int) -> None:
    """Swaps the functions of each module when its first context opens, and back when the last one closes."""
    old, new = (0, 1) if change > 0 else (1, 0)
    with _lock:
        for names in modules:
            before = _depths[id(names)]
            _depths[id(names)] += change
            if 0 in (before, before + change):
                _swap(old, new) if names is vars(np) else _swap_imported(names, old, new)


def _swap(old: int, new: int) -> None:
    for names, stand_ins in ((vars(np), STAND_INS), (vars(np.random), RANDOM_STAND_INS)):
        for name, pair in stand_ins.items():
            if names.get(name) is pair[old]:
                names[name] = pair[new]


def _swap_imported(names: dict[str, Any], old: int, new: int) -> None:
    by_id = {id(pair[old]): pair[new] for pair in (*STAND_INS.values(), *RANDOM_STAND_INS.values())}
    for name, value in list(names.items()):
        if id(value) in by_id:
            names[name] = by_id[id(value)]


def _modules_of(cls: type) -> list[dict[str, Any]]:
    """The globals of the modules that define a class and its ancestors, except modules of the engine and of Python."""
    modules: dict[int, dict[str, Any]] = {}
    for ancestor in cls.__mro__:
        if ancestor.__module__.startswith("lib.engine.") or ancestor.__module__ in sys.stdlib_module_names:
            continue
        for function in vars(ancestor).values():
            names = getattr(function, "__globals__", None)
            if names is not None:
                modules[id(names)] = names
    return list(modules.values())
