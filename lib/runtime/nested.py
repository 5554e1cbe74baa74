"""Runs a schedule to its end even while an event loop is running: in a notebook's cell, in a page's worker.

Only for the game's own schedules, which wait for nothing but each other. The running loop is blocked until the call
returns, as during any computation. A player's schedule may wait for anything, so it needs `run_async`.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lib.game.setting import CLASSIC_SETTING, Setting

from .runner import Outcome, Schedule, run_on


class _Idle:
    """A selector with nothing to select from."""

    on_idle: Callable[[], None] = staticmethod(lambda: None)

    def select(self, timeout: float | None) -> tuple[()]:
        if timeout is None:
            self.on_idle()
        return ()


class _ClosedLoop(asyncio.BaseEventLoop):
    """A loop without the operating system: only tasks and futures, no files or sockets (Pyodide has no sockets)."""

    def __init__(self, selector: _Idle) -> None:
        super().__init__()
        self._selector = selector

    def _process_events(self, events: object) -> None:
        """Does nothing: there are no events."""


def run_nested(
    schedule: Schedule,
    layers: int = 2,
    batches: int = 1,
    ranks: int = 1,
    *,
    setting: Setting = CLASSIC_SETTING,
) -> Outcome:
    """Like `run`, but works while an event loop is running."""
    idle = _Idle()
    with no_running_loop():
        return run_on(_ClosedLoop(idle), idle, schedule, (layers, batches, ranks), setting)


def played(schedule: Schedule, size: tuple[int, int, int], setting: Setting) -> Outcome:
    """Runs one of the game's own schedules, as `run_nested` does."""
    outcome = run_nested(schedule, *size, setting=setting)
    if outcome.error is not None:
        raise outcome.error
    return outcome


@contextmanager
def no_running_loop() -> Iterator[None]:
    """Hides this thread's running loop and task.

    Since Python 3.14 a thread has one current task for all loops; before, each loop has its own.
    """
    loop = asyncio._get_running_loop()
    task = asyncio.current_task(loop) if loop is not None else None
    swap: Any = getattr(asyncio.tasks, "_swap_current_task", None) if task is not None else None
    if swap:
        swap(loop, None)
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)
        if swap:
            swap(loop, task)
