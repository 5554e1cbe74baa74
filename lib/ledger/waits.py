"""What a rank waits for, and when none can move by itself: each waits, has ended or was never seen.

Nothing polls: the counter of ranks that can move reaches zero. If the ranks are the player's own tasks, which may start
late, an absent rank gets a moment to show up. A time limit for each wait was rejected: it would end slow runs and make
verdicts depend on the machine. Who is told what is decided elsewhere: `live_run` wakes ranks, and `deadlocks` words a
standstill.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from lib.ledger.deadlocks import WaitingRank
from lib.ledger.lanes import Lanes
from lib.ledger.meetings import Call, in_group
from lib.ledger.trace import message_text
from lib.ledger.values import Value

if TYPE_CHECKING:
    from asyncio import Future, Task


class Message(NamedTuple):
    """A sent message: the payload, the values in it, the tick at which it was sent, and its tag."""

    payload: Any
    values: tuple[Value, ...]
    sent: int
    tag: int = 0


@dataclass(slots=True, eq=False)
class _Wait:
    """One rank's wait in an operation that involves others, from tick `clock` on."""

    rank: int
    clock: int
    line: int
    future: Future[Any] | None = field(default=None, init=False)


@dataclass(slots=True, eq=False)
class CallWait(_Wait):
    """A wait for the end of a call: a blocking one, or one that was made before. `call` names it in a message, and
    `described` is for a deadlock's."""

    of: Call
    lanes: Lanes[Message]

    def call(self) -> str:
        return f"{'await ' if self.of.name in self.lanes.on_lanes else ''}{self.of.op.call()}"

    def described(self) -> WaitingRank:
        return WaitingRank(
            self.rank, self.call() + in_group(self.of.group), self.line, *self.lanes.why_blocked(self.of)
        )


@dataclass(slots=True, eq=False)
class ReceiveWait(_Wait):
    """A wait for a message from `source`, or from any rank."""

    source: int | None
    tag: int = 0

    def call(self) -> str:
        return message_text("receive", self.source, self.tag)

    def described(self) -> WaitingRank:
        of = () if self.source is None else (self.source,)
        return WaitingRank(self.rank, self.call(), self.line, "receive", of)


Wait = CallWait | ReceiveWait


# --- A standstill ---

ABSENCE_GRACE = 0.2
"""Seconds that a rank has to show up before its absence counts as a deadlock."""


class Waits:
    """What each rank waits for, and the task that it was last seen in, until that is done. It counts the ranks that
    cannot move, and at a standstill calls `resolve_deadlock`, which lets a rank continue or ends all waits. If ranks
    may still show up, it first calls only `_deliver_earliest`, which says whether a rank can continue."""

    def __init__(self, ranks: int) -> None:
        import asyncio  # here, because it takes longer to import than all of lib

        self.supervised = False
        """Every rank's task is known, so an absent rank has certainly ended."""
        self.moves = 0
        """Counts how often a rank has begun or ended something that involves others."""
        self._ranks = self._still = ranks
        self._waiting = 0
        self._look_planned = False
        self._waits: list[Wait | None] = [None] * ranks
        self._tasks: list[Task[Any] | None] = [None] * ranks
        """The task that each rank was last seen in, until it is done."""
        self._ended: dict[int, str] = {}
        self._loop = asyncio.get_running_loop
        self._current_task = asyncio.current_task

    def resolve_deadlock(self) -> object:
        """Lets a rank continue, or ends all waits."""
        raise NotImplementedError

    def _deliver_earliest(self) -> bool:
        """Lets a rank continue that takes a message from any rank, if there is one."""
        raise NotImplementedError

    def supervise(self, tasks: Sequence[Task[Any]]) -> None:
        """Takes every rank's task, in rank order, so that it is certain when a rank has ended."""
        self.supervised = True
        for rank, task in enumerate(tasks):
            self._follow(rank, task)

    def act(self, rank: int) -> None:
        """Records that a rank is alive, in the running task."""
        self.moves += 1
        if not self.supervised:
            task = self._current_task()
            if task is not None and self._tasks[rank] is not task:
                self._follow(rank, task)

    def other_rank(self, rank: int) -> int | None:
        """Another rank whose task is running; None if it is this rank's task or no rank's."""
        task = self._current_task()
        if task is self._tasks[rank]:
            return None
        return next((other for other, its in enumerate(self._tasks) if its is task), None)

    def ending(self, rank: int) -> str:
        """How a rank that does not wait has ended, for a deadlock message: 'has returned'."""
        return self._ended.get(rank, "has returned or not started")

    def suspend(self, wait: Wait) -> Future[Any]:
        """The future that a rank awaits until another rank or the end of the waiting answers it; then the rank must
        `leave`."""
        future = wait.future = self._loop().create_future()
        self._waits[wait.rank] = wait
        self._waiting += 1
        self._still += 1
        if self._still == self._ranks:
            self._react()
        return future

    def is_waiting(self, rank: int) -> bool:
        return self._waits[rank] is not None

    def _advance(self, wait: Wait) -> None:
        """Counts a rank that does not wait any more."""
        self._waits[wait.rank] = None
        self._waiting -= 1
        self._still -= 1
        self.moves += 1

    def _follow(self, rank: int, task: Task[Any]) -> None:
        if self._tasks[rank] is None:  # it was not seen before, or had ended
            self._still -= 1
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
        self.moves += 1
        self._still += 1
        if self._stands_still:
            self._react()

    @property
    def _stands_still(self) -> bool:
        return self._still == self._ranks and self._waiting > 0

    def _react(self) -> None:
        if self.supervised or self._waiting == self._ranks:
            self.resolve_deadlock()
        elif not self._look_planned:
            # Ranks that start after this one, or whose helper task just ended, get their turn first.
            self._look_planned = True
            self._loop().call_soon(self._look)

    def _look(self) -> None:
        self._look_planned = False
        if self._stands_still and not self._deliver_earliest():
            self._loop().call_later(ABSENCE_GRACE, self._look_again, self.moves)

    def _look_again(self, moves: int) -> None:
        if self._stands_still:
            if moves == self.moves:
                self.resolve_deadlock()
            elif not self._look_planned:
                self._look()
