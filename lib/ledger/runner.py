"""Runs a schedule, one coroutine per rank, on a private event loop or on the running loop.

Ranks are coroutines, not threads or processes: a run has one order for each order of starts, and a deadlock is seen
when nothing is left to do, without a timeout. Only on a shared loop, which never runs out of work, is there a patience.

This module decides when a run ends and which rank's error is reported. What a rank waits for is decided by
`live_run`.
"""

from __future__ import annotations

import selectors
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lib.errors import DeadlockError, PuzzleError, Sentences
from lib.ledger.setting import CLASSIC_SETTING, Setting
from lib.ledger.trace import Trace, no_collection

from .live_run import Dist, LiveRun
from .model import Model

if TYPE_CHECKING:
    import asyncio

Schedule = Callable[[Model], Any]
"""A player's function, sync or async, called once for each rank."""

PATIENCE = 0.6
"""Seconds that ranks may wait for something outside the game on a shared loop, while nothing moves in the run."""


@dataclass(frozen=True)
class Outcome:
    """A run that has ended: its models, its trace, and per rank the exception that stopped it, if any."""

    models: tuple[Model, ...]
    errors: tuple[BaseException | None, ...]
    trace: Trace

    @property
    def error(self) -> BaseException | None:
        """The error to report: by the ranks' clocks the first that is not a consequence of another. Of a deadlock, that
        of a rank whose own call explains it."""
        pairs = zip(self.models, self.errors)
        failures = [(model.time, model.rank, error) for model, error in pairs if error is not None]
        causes = [entry for entry in failures if not isinstance(entry[2], DeadlockError)]
        if not causes:
            causes = [entry for entry in failures if entry[1] in self.models[0].run.nearest_to_cause]
        return min(causes or failures, key=lambda entry: entry[:2])[2] if failures else None


class IdleSelector(selectors.DefaultSelector):
    """A selector that reports when the loop has nothing to do: no callback is ready, and no timer is set."""

    on_idle: Callable[[], None] = staticmethod(lambda: None)

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            self.on_idle()
            timeout = 0
        return super().select(timeout)


def run(
    schedule: Schedule,
    layers: int = 2,
    batches: int = 1,
    ranks: int = 1,
    order: Iterable[int] | None = None,
    *,
    setting: Setting = CLASSIC_SETTING,
) -> Outcome:
    """Runs `schedule` on every rank to its end. Ranks are started in `order`, which has no effect on the result.

    A rank's exception is returned, not raised; other ranks continue until they end or can only wait.

    Raises:
        PuzzleError: an event loop is already running, as in a notebook.
    """
    import asyncio  # here, because it takes longer to import than all of lib

    if asyncio._get_running_loop() is not None:
        raise PuzzleError(SAYS("loop is running"))
    selector = IdleSelector()
    return run_on(asyncio.SelectorEventLoop(selector), selector, schedule, (layers, batches, ranks), setting, order)


def run_on(
    loop: asyncio.AbstractEventLoop,
    selector: Any,
    schedule: Schedule,
    size: tuple[int, int, int],
    setting: Setting,
    order: Iterable[int] | None = None,
) -> Outcome:
    """Runs a schedule on its own loop, which is then closed; `selector.on_idle` is called whenever the loop has nothing
    to do."""
    import asyncio

    try:
        models, live = _enter(*size, setting)
        starting = list(range(len(models))) if order is None else list(order)
        tasks = {rank: loop.create_task(_rank(schedule, models[rank])) for rank in starting}
        in_order = [tasks[rank] for rank in range(len(models))]
        live.supervise(in_order)
        selector.on_idle = lambda: _end_waiting(live, in_order)
        with no_collection():
            results = loop.run_until_complete(asyncio.gather(*in_order, return_exceptions=True))
    finally:
        _sweep(loop)
        loop.close()
    return _outcome(models, live, results)


async def run_async(
    schedule: Schedule,
    layers: int = 2,
    batches: int = 1,
    ranks: int = 1,
    patience: float = PATIENCE,
    *,
    setting: Setting = CLASSIC_SETTING,
) -> Outcome:
    """Like `run`, on the running loop, as in a notebook. If it is cancelled, so are its ranks.

    Other tasks use that loop, so it always has something to do; a wait for something outside the game ends after
    `patience` seconds.
    """
    import asyncio

    models, live = _enter(layers, batches, ranks, setting)
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(_rank(schedule, model)) for model in models]
    live.supervise(tasks)
    watch = _PatienceTimer(live, tasks, patience)
    try:
        results = await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        watch.end()
    return _outcome(models, live, results)


def _enter(layers: int, batches: int, ranks: int, setting: Setting) -> tuple[tuple[Model, ...], LiveRun]:
    dist = Dist(ranks, setting=setting)
    models = tuple(Model(rank, dist, layers, batches) for rank in range(dist.ranks))
    return models, models[0].run


def _outcome(models: tuple[Model, ...], live: LiveRun, results: Iterable[object]) -> Outcome:
    errors = tuple(result if isinstance(result, BaseException) else None for result in results)
    return Outcome(models, errors, live.trace())


async def _rank(schedule: Schedule, model: Model) -> None:
    from asyncio import CancelledError

    try:
        result = schedule(model)
        if hasattr(result, "__await__"):
            await result
    except SystemExit as why:
        raise RuntimeError(f"the schedule called exit({why.code})") from why
    except CancelledError as why:
        if not why.args:
            raise  # swept up at the end, or cancelled by the player
        raise DeadlockError(why.args[0]) from None
    model.finish()


def _end_waiting(live: LiveRun, tasks: list[asyncio.Task[None]]) -> None:
    """Called when the loop has nothing to do: some ranks wait for something outside this run."""
    outside = {rank: task for rank, task in enumerate(tasks) if not task.done() and not live.is_waiting(rank)}
    states = {rank: f"waits on line {_line(task)} for something outside the game" for rank, task in outside.items()}
    if not live.resolve_deadlock(states):
        for rank, task in outside.items():
            task.cancel(f"nobody can move: rank {rank} {states[rank]}; use receive or a collective to wait for a rank")


class _PatienceTimer:
    """Checks at intervals whether anything moves in a run, on a loop that others use too; if not, ends the waiting."""

    LOOKS = 3
    """Consecutive checks that must find that nothing moved: the loop may have been busy with other tasks during one."""

    def __init__(self, live: LiveRun, tasks: list[asyncio.Task[None]], patience: float) -> None:
        self._run, self._tasks = live, tasks
        self._between = self._pause = patience / self.LOOKS
        self._seen, self._quiet = live.moves, 0
        self._wait()

    def _wait(self) -> None:
        self._timer = self._tasks[0].get_loop().call_later(self._pause, self._look)

    def _look(self) -> None:
        moved, self._seen = self._run.moves != self._seen, self._run.moves
        self._quiet = 0 if moved else self._quiet + 1
        self._pause = self._between
        if self._quiet >= self.LOOKS:
            _end_waiting(self._run, self._tasks)
            # Ranks that wait outside the game are ended after those within it, and without another delay.
            self._quiet, self._pause = self.LOOKS - 1, 0.01
        self._wait()

    def end(self) -> None:
        self._timer.cancel()


def _line(task: asyncio.Task[None]) -> int:
    """The line of the player's file on which a coroutine is suspended; it may await functions in other files."""
    rank: Any = task.get_coro()
    coroutine, line = rank.cr_await, 0
    file = coroutine.cr_code.co_filename if hasattr(coroutine, "cr_code") else ""
    while hasattr(coroutine, "cr_frame"):
        if coroutine.cr_code.co_filename == file:
            line = coroutine.cr_frame.f_lineno
        coroutine = coroutine.cr_await
    return line


def _sweep(loop: asyncio.AbstractEventLoop) -> None:
    """Cancels tasks that a player has left behind."""
    import asyncio

    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))


# --- A run while an event loop is running: in a notebook's cell, in a page's worker ---
#
# Only for the game's own schedules, which wait for nothing but each other. The running loop is blocked until the call
# returns, as during any computation. A player's schedule may wait for anything, so it needs `run_async`.


class _Idle:
    """A selector with nothing to select from."""

    on_idle: Callable[[], None] = staticmethod(lambda: None)

    def select(self, timeout: float | None) -> tuple[()]:
        if timeout is None:
            self.on_idle()
        return ()


def _closed_loop(selector: _Idle) -> asyncio.AbstractEventLoop:
    """A loop without the operating system: only tasks and futures, no files or sockets (Pyodide has no sockets)."""
    from asyncio import BaseEventLoop

    class ClosedLoop(BaseEventLoop):
        _selector = selector

        def _process_events(self, events: object) -> None:
            """Does nothing: there are no events."""

    return ClosedLoop()


def run_nested(
    schedule: Schedule, layers: int = 2, batches: int = 1, ranks: int = 1, *, setting: Setting = CLASSIC_SETTING
) -> Outcome:
    """Like `run`, but works while an event loop is running."""
    idle = _Idle()
    with no_running_loop():
        return run_on(_closed_loop(idle), idle, schedule, (layers, batches, ranks), setting)


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
    import asyncio

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


SAYS = Sentences(
    {
        "loop is running": "run cannot be called where an event loop is running, as in a notebook; use 'await run_async(...)'",
    }
)
