"""Runs a player's code in turns: each has a time limit and reacts to Ctrl-C, and the tasks it starts are ended."""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from lib import DeadlockError
from puzzles.sandbox.deadline import TimeLimitError, Timer

T = TypeVar("T")


class TurnStoppedError(Exception):
    """A turn was ended from outside: it took too long, or the player interrupted it."""

    def __init__(self, reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.reason = reason


class LimitedTurns:
    """Everything that one run has on the event loop, apart from the ranks themselves."""

    def __init__(self, seconds: float) -> None:
        """`seconds` is the wall time of one turn."""
        self.seconds = seconds
        self.started: set[asyncio.Task[Any]] = set()
        """Tasks that the player's code has made."""
        self.over = False
        """True once a turn was ended from outside; after that there are no further turns."""

    def in_turns(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its call and each step of its coroutine as a turn."""

        def limited(*arguments: Any) -> Any:
            result = self.turn(lambda: function(*arguments))
            return Steps(result, self) if inspect.iscoroutine(result) else result

        return limited

    def turn(self, work: Callable[[], T]) -> T:
        """Returns what `work` returns. Ctrl-C interrupts it; a notebook would delay it to the end of the turn."""
        if self.over:
            raise DeadlockError("the play was stopped during another rank's turn")
        timer = Timer(self.seconds)
        try:
            with _interruptible(), self._own_tasks():
                return timer.run(work, in_greenlets=True)
        except TimeLimitError as why:
            self.over = True
            hint = "look for a loop that does not end, or allow more with play(..., seconds=60)"
            raise TurnStoppedError("timeout", f"time was up after {self.seconds:g} s; {hint}").with_traceback(
                why.__traceback__
            ) from None
        except KeyboardInterrupt as why:
            self.over = True
            raise TurnStoppedError("interrupted", "you interrupted it").with_traceback(why.__traceback__) from None

    @contextmanager
    def _own_tasks(self) -> Iterator[None]:
        """Records the tasks that are created during a turn, so that their turns are limited too."""
        loop = asyncio.get_running_loop()
        before = loop.get_task_factory()

        def start(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
            inner = Steps(coroutine, self) if inspect.iscoroutine(coroutine) else coroutine
            task: asyncio.Task[Any] = asyncio.Task(_awaited(inner), loop=loop, **options)
            self.started.add(task)
            return task

        loop.set_task_factory(start)
        try:
            yield
        finally:
            loop.set_task_factory(before)

    async def sweep(self) -> None:
        """Ends the tasks that the player's code has left running."""
        left = [task for task in self.started if not task.done()]
        for task in left:
            task.cancel()
        await asyncio.gather(*self.started, return_exceptions=True)


class Steps:
    """A coroutine of the player's, each step of which is a turn. It exposes the coroutine's attributes, so that `lib`
    finds its line."""

    def __init__(self, coroutine: Any, turns: LimitedTurns) -> None:
        self._coroutine = coroutine
        self._turns = turns

    def __await__(self) -> Steps:
        return self

    def __iter__(self) -> Steps:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        return self._turns.turn(lambda: self._coroutine.send(value))

    def throw(self, *error: Any) -> Any:
        return self._turns.turn(lambda: self._coroutine.throw(*error))

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
    """Lets Ctrl-C raise KeyboardInterrupt immediately."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
