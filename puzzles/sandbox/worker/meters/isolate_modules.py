"""Every device loads the player's file for itself: no two share its module, its classes or what is kept in them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any

import lib.engine
from lib import RuleError
from lib.engine import ShardedEngine
from lib.engine.metering import meter

_launch, _unmetered = lib.engine.launch, lib.engine.unmetered
_loading = [False]


def each_its_own(load: Callable[[int], type]) -> type:
    """A class whose instances are of the player's, in a module for each device; arrays there are charged to it."""
    numbers = count()

    class Apart(ShardedEngine):
        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            with while_loading():
                mine = load(next(numbers))
            return mine.__new__(mine, *args, **kwargs)

    return Apart


@contextmanager
def while_loading() -> Iterator[None]:
    """Within: a file may try itself out, as scripts do when they are run; that is nobody's work here."""
    before, _loading[0] = meter.current.meter, True
    try:
        yield
    finally:
        meter.current.meter, _loading[0] = before, False


def is_loading() -> bool:
    """Whether a device is loading the file, and what happens is none of its puzzle's calls."""
    return _loading[0]


def launch(*args: Any, **kwargs: Any) -> Any:
    """As ever, but not by a device: what happens in there is on other meters."""
    if meter.current.meter is not None and not is_loading():
        raise RuleError("a device cannot launch devices of its own; what it computes, it computes itself")
    return _launch(*args, **kwargs)


def unmetered() -> AbstractContextManager[None]:
    """As ever for the engine's own code, and for nobody else."""
    if not sys._getframe(1).f_globals.get("__name__", "").startswith("lib."):
        raise RuleError("unmetered() is for looking on from outside; what a device does is counted")
    return _unmetered()


lib.engine.launch = launch
lib.engine.unmetered = meter.unmetered = unmetered
