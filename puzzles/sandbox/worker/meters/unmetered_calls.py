"""Refuses devices the calls of the engine in which no meter counts: `launch`, `unmetered` and `run_kernel`."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import lib.engine
from lib import RuleError
from lib.engine.metering import kernel, meter

_launch, _unmetered, _run_kernel = lib.engine.launch, lib.engine.unmetered, kernel.run_kernel
_loading = [False]


@contextmanager
def while_loading() -> Iterator[None]:
    """Marks that a device is loading the file: what a script tries out while it is loaded is charged to no device."""
    before, _loading[0] = meter.current.meter, True
    try:
        yield
    finally:
        meter.current.meter, _loading[0] = before, False


def is_loading() -> bool:
    """True while a device is loading the file, when nothing belongs to its puzzle's calls."""
    return _loading[0]


def launch(*args: Any, **kwargs: Any) -> Any:
    """`lib.engine.launch`, but refused to devices, because their meters do not count what happens in it."""
    if meter.current.meter is not None and not is_loading():
        raise RuleError("a device cannot launch devices of its own; it has to compute everything itself")
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
kernel.run_kernel = run_kernel
lib.engine.unmetered = meter.unmetered = unmetered  # type: ignore[assignment]
