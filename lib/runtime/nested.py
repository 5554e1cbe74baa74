"""Runs a schedule to its end where an event loop may be running already: in a notebook's cell, in a page's worker.

Only for schedules of the game itself, which wait for nothing but each other. The loop that is running is idle until the
call returns, as during any other computation; so a player's schedule, which may wait for anything, has `run_async`.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lib.game.setting import CLASSIC_SETTING, Setting

from .runner import Outcome, Schedule, run_on


class _Idle:
    """Stands for a selector where there is nothing to select from."""

    on_idle: Callable[[], None] = staticmethod(lambda: None)

    def select(self, timeout: float | None) -> tuple[()]:
        if timeout is None:
            self.on_idle()
        return ()


class _ClosedLoop(asyncio.BaseEventLoop):
    """A loop without the operating system: no files, no sockets (of which Pyodide has none), only tasks and futures."""

    def __init__(self, selector: _Idle) -> None:
        super().__init__()
        self._selector = selector

    def _process_events(self, events: object) -> None:
        """There are none."""


def run_nested(
    schedule: Schedule,
    layers: int = 2,
    batches: int = 1,
    ranks: int = 1,
    *,
    setting: Setting = CLASSIC_SETTING,
    fold: str = "",
) -> Outcome:
    """As `run`, also where an event loop is running."""
    idle = _Idle()
    with no_running_loop():
        return run_on(_ClosedLoop(idle), idle, schedule, (layers, batches, ranks), setting, fold)


def played(schedule: Schedule, size: tuple[int, int, int], setting: Setting) -> Outcome:
    """A run of a schedule of the game itself, as `run_nested`."""
    outcome = run_nested(schedule, *size, setting=setting)
    if outcome.error is not None:
        raise outcome.error
    return outcome


@contextmanager
def no_running_loop() -> Iterator[None]:
    """Hides the loop that runs in this thread, and the task that runs in it.

    From Python 3.14 on, a thread has one current task, whatever its loop; before, each loop has its own.
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
