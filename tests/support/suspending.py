"""`pyodide.ffi.run_sync` outside a browser: greenlets take the place of the stacks that WebAssembly suspends."""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

from greenlet import getcurrent, greenlet

PATCHED = {
    "lib.engine.inprocess": ("GreenletExit", "getcurrent", "greenlet"),
    "lib.engine.transport": ("GreenletExit",),
}
"""Modules that a run in one process uses, with what they have from `tasks`."""


class SuspendingLoop(asyncio.SelectorEventLoop):
    """An event loop whose callbacks each have a stack of their own, as Pyodide's have."""

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.Handle:
        return super().call_soon(lambda: greenlet(partial(callback, *args)).switch(), context=context)


def run_sync(future: asyncio.Future[Any]) -> Any:
    """Lets the event loop go on until a future is there, and returns its result."""
    here: Any = getcurrent()
    assert here.parent is not None, "run_sync needs a stack that can be suspended"
    future.add_done_callback(lambda _: here.switch())
    here.parent.switch()
    return future.result()


def with_suspended_tasks(main: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """What a coroutine returns, with tasks of the in-process transport as a browser has them."""
    with _suspended() as tasks, asyncio.Runner(loop_factory=SuspendingLoop) as runner:
        result = runner.run(main())
        assert tasks.getcurrent().parent is None, "the caller runs again"
        return result


@contextmanager
def _suspended() -> Iterator[Any]:
    pyodide, ffi = ModuleType("pyodide"), ModuleType("pyodide.ffi")
    ffi.run_sync = run_sync  # type: ignore[attr-defined]
    sys.modules |= {"pyodide": pyodide, "pyodide.ffi": ffi}
    saved = [(module, name, getattr(import_module(module), name)) for module in PATCHED for name in PATCHED[module]]
    try:
        tasks = import_module("lib.engine.suspended")
        for module, name, _ in saved:
            setattr(sys.modules[module], name, getattr(tasks, name))
        yield tasks
    finally:
        for module, name, before in saved:
            setattr(sys.modules[module], name, before)
        for name in ("pyodide", "pyodide.ffi", "lib.engine.suspended"):
            sys.modules.pop(name, None)
