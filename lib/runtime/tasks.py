"""Follows the asyncio task of each rank: which ranks are alive, and how the others have ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .deadlock_detection import DeadlockDetector

if TYPE_CHECKING:
    from asyncio import Task


class RankTasks:
    """The task that each rank was last seen in, until it is done."""

    def __init__(self, ranks: int, detector: DeadlockDetector, current_task: Callable[[], Task[Any] | None]) -> None:
        self._tasks: list[Task[Any] | None] = [None] * ranks
        self._ended: dict[int, str] = {}
        self._detector = detector
        self._current_task = current_task

    def supervise(self, tasks: Sequence[Task[Any]]) -> None:
        """Takes every rank's task, in rank order: from now on it is certain when a rank has ended."""
        self._detector.supervised = True
        for rank, task in enumerate(tasks):
            self._follow(rank, task)

    def act(self, rank: int) -> None:
        """Notes that a rank is alive, in the task that runs now."""
        self._detector.moves += 1
        if not self._detector.supervised:
            task = self._current_task()
            if task is not None and self._tasks[rank] is not task:
                self._follow(rank, task)

    def other(self, rank: int) -> int | None:
        """The rank, other than this one, whose task runs now; None if it is this rank's or nobody's."""
        task = self._current_task()
        if task is self._tasks[rank]:
            return None
        return next((other for other, its in enumerate(self._tasks) if its is task), None)

    def ending(self, rank: int) -> str:
        """The end of a rank that does not wait, as a deadlock message has it: 'has returned'."""
        return self._ended.get(rank, "has returned or not started")

    def _follow(self, rank: int, task: Task[Any]) -> None:
        if self._tasks[rank] is None:
            self._detector.begin()
            self._ended.pop(rank, None)
        self._tasks[rank] = task
        task.add_done_callback(lambda done: self._end(rank, done))

    def _end(self, rank: int, task: Task[Any]) -> None:
        if self._tasks[rank] is not task:
            return
        self._tasks[rank] = None
        if task.cancelled():
            self._ended[rank] = "was cancelled"
        elif (error := task.exception()) is not None:
            self._ended[rank] = f"stopped with {type(error).__name__} ({str(error):.150})"
        else:
            self._ended[rank] = "has returned"
        self._detector.end()
