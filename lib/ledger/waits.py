"""What a rank waits for, and when none can move by itself: each waits, has ended or was never seen.

Nothing polls: the counter of ranks that can move reaches zero. If the ranks are the player's own tasks, which may start
late, an absent rank gets a moment to show up. A time limit for each wait was rejected: it would end slow runs and make
verdicts depend on the machine. Who is told what is decided elsewhere: `live_run` wakes ranks, and `deadlocks` words a
standstill.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple

from lib.ledger.deadlocks import WaitingRank
from lib.ledger.lanes import Lanes
from lib.ledger.meetings import Call, in_group
from lib.ledger.trace import message_text
from lib.ledger.values import Value

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future, Task


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


class Offers:
    """Messages that receives from any source could take. The earliest is the one whose receive starts first, then the
    one that was sent first, then the one from the lowest rank. A heap, since looking through all mailboxes at each
    standstill takes a tenth of a run with receives from any source."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, int, int, ReceiveWait, Message]] = []
        self._count = 0

    def add(self, receiver: ReceiveWait, source: int, message: Message) -> None:
        """Offers a message from `source` to an open receive."""
        self._count += 1
        start = max(receiver.clock, message.sent)
        heappush(self._heap, (start, message.sent, source, receiver.rank, self._count, receiver, message))

    def earliest(self, is_open: Callable[[ReceiveWait, int, Message], bool]) -> tuple[ReceiveWait, int] | None:
        """Removes the earliest offer for which `is_open` is true of the receive and the sender."""
        while self._heap:
            _, _, source, _, _, receiver, message = heappop(self._heap)
            if is_open(receiver, source, message):
                return receiver, source
        return None


# --- A standstill ---

ABSENCE_GRACE = 0.2
"""Seconds that a rank has to show up before its absence counts as a deadlock."""


class DeadlockDetector:
    """Follows the task of each rank until it is done, and counts the ranks that cannot move. At a standstill it calls
    `resolve_deadlock`, which lets a rank continue or ends all waits. If ranks may still show up, it first calls only
    `hand_over`, which says whether a rank can continue."""

    def __init__(
        self,
        ranks: int,
        loop: Callable[[], AbstractEventLoop],
        current_task: Callable[[], Task[Any] | None],
        hand_over: Callable[[], bool],
        resolve_deadlock: Callable[[], object],
    ) -> None:
        self.supervised = False
        """Every rank's task is known, so an absent rank has certainly ended."""
        self.moves = 0
        """Counts how often a rank has begun or ended something that involves others."""
        self._ranks = self._still = ranks
        self._waiting = 0
        self._look_planned = False
        self._tasks: list[Task[Any] | None] = [None] * ranks
        """The task that each rank was last seen in, until it is done."""
        self._ended: dict[int, str] = {}
        self._loop = loop
        self._current_task = current_task
        self._hand_over = hand_over
        self._end_waiting = resolve_deadlock

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

    def other(self, rank: int) -> int | None:
        """Another rank whose task is running; None if it is this rank's task or no rank's."""
        task = self._current_task()
        if task is self._tasks[rank]:
            return None
        return next((other for other, its in enumerate(self._tasks) if its is task), None)

    def ending(self, rank: int) -> str:
        """How a rank that does not wait has ended, for a deadlock message: 'has returned'."""
        return self._ended.get(rank, "has returned or not started")

    def wait(self) -> None:
        self._waiting += 1
        self._still += 1
        if self._still == self._ranks:
            self._react()

    def advance(self) -> None:
        """Counts a rank that does not wait any more."""
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
            self._end_waiting()
        elif not self._look_planned:
            # Ranks that start after this one, or whose helper task just ended, get their turn first.
            self._look_planned = True
            self._loop().call_soon(self._look)

    def _look(self) -> None:
        self._look_planned = False
        if self._stands_still and not self._hand_over():
            self._loop().call_later(ABSENCE_GRACE, self._look_again, self.moves)

    def _look_again(self, moves: int) -> None:
        if self._stands_still:
            if moves == self.moves:
                self._end_waiting()
            elif not self._look_planned:
                self._look()
