"""Takes a player's coroutine turn by turn: no turn lasts for ever, and what it starts is known and can be ended."""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lib import DeadlockError, Model
from puzzles.sandbox.deadline import TimeLimitError, Timer

SECONDS = 0.8
"""Wall time of one turn, which is what a rank does between two waits; most take less than a thousandth of it."""


class Stopped(Exception):
    """A turn that was ended from outside: it took too long, or the player interrupted it."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


class Ring:
    """All that one play runs on the event loop, besides the ranks themselves."""

    def __init__(self, function: Callable[[Model], Any], seconds: float = SECONDS) -> None:
        self.function = function
        self.seconds = seconds
        self.started: set[asyncio.Task[Any]] = set()
        """Tasks that the player's code has made."""
        self.over = False
        """Whether a turn was ended from outside; then nobody gets another one."""

    def schedule(self, model: Model) -> Any:
        """The player's function, in turns of limited length: what `lib.run_async` runs on each rank."""
        result = self.turn(lambda: self.function(model))
        return Turns(result, self) if inspect.iscoroutine(result) else result

    def turn(self, work: Callable[[], Any]) -> Any:
        """One turn. Ctrl-C reaches it, though a notebook would keep that for the end of the turn."""
        if self.over:
            raise DeadlockError("the play was stopped while another rank had its turn")
        timer = Timer(self.seconds)
        try:
            with _interruptible(), self._own_tasks():
                return timer.run(work)
        except TimeLimitError as why:
            self.over = True
            hint = "look for a loop that does not end, or allow more with play(..., seconds=60)"
            raise Stopped("timeout", f"time was up after {self.seconds:g} s; {hint}").with_traceback(
                why.__traceback__
            ) from None
        except KeyboardInterrupt as why:
            self.over = True
            raise Stopped("interrupted", "you interrupted it").with_traceback(why.__traceback__) from None

    @contextmanager
    def _own_tasks(self) -> Iterator[None]:
        """Notes the tasks that are made during a turn. Their turns are limited too."""
        loop = asyncio.get_running_loop()
        before = loop.get_task_factory()

        def start(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
            inner = Turns(coroutine, self) if inspect.iscoroutine(coroutine) else coroutine
            task: asyncio.Task[Any] = asyncio.Task(_awaited(inner), loop=loop, **options)
            self.started.add(task)
            return task

        loop.set_task_factory(start)
        try:
            yield
        finally:
            loop.set_task_factory(before)

    async def sweep(self) -> None:
        """Ends the tasks that the player's code has left behind."""
        left = [task for task in self.started if not task.done()]
        for task in left:
            task.cancel()
        await asyncio.gather(*self.started, return_exceptions=True)


class Turns:
    """A coroutine of the player's, each step of which is a turn. Looks like one where `lib` asks for its line."""

    def __init__(self, coroutine: Any, ring: Ring) -> None:
        self._coroutine = coroutine
        self._ring = ring

    def __await__(self) -> Turns:
        return self

    def __iter__(self) -> Turns:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        return self._ring.turn(lambda: self._coroutine.send(value))

    def throw(self, *error: Any) -> Any:
        return self._ring.turn(lambda: self._coroutine.throw(*error))

    def close(self) -> None:
        self._coroutine.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("cr_"):
            return getattr(self._coroutine, name)
        raise AttributeError(name)


async def _awaited(awaitable: Any) -> Any:
    return await awaitable


@contextmanager
def _interruptible() -> Iterator[None]:
    """Lets Ctrl-C raise KeyboardInterrupt where it strikes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
