"""Tasks in a browser's Python: each has its own stack, which Pyodide's `run_sync` suspends.

They have the methods of greenlets that the engine uses. The event loop starts a task. A waiting task waits for a
future, which the task that switches to it completes. `run_sync` needs JavaScript Promise Integration (JSPI), which not
all browsers have.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from pyodide.ffi import run_sync


class GreenletExit(BaseException):  # the name that greenlet gives it
    """Ends a task where it waits."""


class SuspendedTask:
    """A function that runs from the first switch to it. What it returns or raises goes to its parent."""

    def __init__(self, run: Callable[[], Any] | None, parent: SuspendedTask | None) -> None:
        self.run, self.parent, self.dead = run, parent, False
        self.gr_frame: FrameType | None = None
        """The frame where it waits."""
        self._woken: asyncio.Future[Any] | None = None

    def __bool__(self) -> bool:
        """True if it has started and not ended."""
        return not self.dead and self.run is None

    def switch(self, value: Any = None) -> Any:
        """Runs this task until another one switches back, and returns the value that the other one passes."""
        return _switch(self, value)

    def throw(self, error: type[BaseException]) -> Any:
        """Switches to this task, which raises an error where it waits."""
        return _switch(self, error=error())

    def begin(self, run: Callable[[], Any]) -> None:
        """Runs its function to the end, on a new stack."""
        global _running
        _running = self
        value, error = None, None
        try:
            value = run()
        except GreenletExit:
            pass
        except BaseException as why:
            error = why
        self.dead = True
        assert self.parent is not None, "only the first task has no parent, and it is never begun"
        self.parent.wake(value, error)

    def wake(self, value: Any, error: BaseException | None) -> None:
        """Lets it continue as soon as the running task is suspended or ends."""
        if self.run is not None:
            run, self.run = self.run, None
            asyncio.get_running_loop().call_soon(self.begin, run)
            return
        assert self._woken is not None, "a task that does not run waits"
        if error is None:
            self._woken.set_result(value)
        else:
            self._woken.set_exception(error)


_running = SuspendedTask(None, None)
"""The running task; at first, the caller of the engine."""


def _switch(to: SuspendedTask, value: Any = None, error: BaseException | None = None) -> Any:
    global _running
    here = _running
    here._woken = asyncio.get_running_loop().create_future()
    here.gr_frame = sys._getframe(1)
    to.wake(value, error)
    try:
        return run_sync(here._woken)
    finally:
        here.gr_frame = None
        _running = here


def getcurrent() -> SuspendedTask:
    return _running


def greenlet(run: Callable[[], Any]) -> SuspendedTask:
    """A task that has not started; its parent is the running task."""
    return SuspendedTask(run, _running)
