"""Where ranks meet: collectives, messages, and the end of waiting. The only file that creates futures.

Nothing here polls. A rank that has to wait leaves a `Wait`; the rank that completes it wakes it. When every rank
waits or is gone, nobody can move: then the earliest message is given to whoever takes any, or it is a deadlock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from lib import rules
from lib.costs import CLASSIC, Costs
from lib.deadlock import Standstill, explain
from lib.errors import DeadlockError, MismatchError, PuzzleError, RuleError
from lib.rules import Size
from lib.trace import Trace
from lib.values import algebra
from lib.values.base import Value

from .recorder import Tape
from .waits import Joining, Message, Posting, Receiving, Wait

if TYPE_CHECKING:
    import asyncio

GRACE = 0.2
"""Seconds that a rank, which may have ended, is given to show up before its absence is called a deadlock."""


class Dist:
    """A group of ranks that can communicate: `Dist(4)` for ranks 0 to 3.

    Giving a rank a second Model starts a new run, so that a notebook cell can be run again.
    """

    def __init__(self, ranks: int) -> None:
        self.ranks = algebra.whole_number(ranks, "ranks", "Dist", least=1)
        self._run: Run | None = None

    def __repr__(self) -> str:
        return f"Dist({self.ranks})"

    def enter(self, rank: object, layers: object, batches: object) -> tuple[Run, int]:
        """The run that a new Model for `rank` belongs to, and the checked rank."""
        rank = algebra.number(rank, self.ranks, "rank", "Model")
        size = Size(
            algebra.whole_number(layers, "layers", "Model", least=1),
            algebra.whole_number(batches, "batches", "Model", least=1),
            self.ranks,
        )
        run = self._run
        if run is None or rank in run.entered:
            run = self._run = Run(size)
        elif run.size != size:
            raise RuleError(
                f"rank {rank} asks for {size.layers} layers and {size.batches} batches, and rank {min(run.entered)} "
                f"for {run.size.layers} and {run.size.batches}; all ranks of a Dist share one model: "
                "use the same, or a new Dist"
            )
        run.entered.add(rank)
        return run, rank


class Run:
    """One game: the tapes of all ranks, and who waits for what."""

    def __init__(self, size: Size, costs: Costs = CLASSIC) -> None:
        import asyncio  # here, because it takes longer to import than all of lib

        self._event_loop = asyncio.get_running_loop
        self._current_task = asyncio.current_task
        self.size = size
        self.costs = costs
        self.tapes = [Tape(rank, size, costs, self) for rank in range(size.ranks)]
        self.entered: set[int] = set()
        self._waits: list[Wait | None] = [None] * size.ranks
        self._waiting = 0
        self._still = size.ranks
        """Ranks that cannot move by themselves: they wait, have ended, or were never seen."""
        self._tasks: list[asyncio.Task[Any] | None] = [None] * size.ranks
        self._ended: dict[int, str] = {}
        self._supervised = False
        self._moves = 0
        self._look_planned = False
        self._joining: list[Joining | None] = [None] * size.ranks
        self._joined = 0
        self._inboxes: list[dict[int, Message]] = [{} for _ in range(size.ranks)]
        self._posting: list[dict[int, Posting]] = [{} for _ in range(size.ranks)]
        self._offers: list[tuple[int, int, int, int, int, Receiving, Message]] = []
        self._offered = 0

    def trace(self) -> Trace:
        """What has been recorded so far."""
        return Trace(self.size, tuple(tuple(tape.ops) for tape in self.tapes), self.costs)

    # --- Each of these answers at once, or returns None: then the rank has to `stay`. ---

    def join(self, wait: Joining) -> tuple[Value, int] | None:
        """Meets all ranks. Answers this rank's result, and the tick at which the collective starts."""
        self._joining[wait.rank] = wait
        self._joined += 1
        if self._joined < self.size.ranks:
            return None
        waits = [w for w in self._joining if w is not None]
        self._joining, self._joined = [None] * self.size.ranks, 0
        try:
            rules.agree([(w.name, w.layer) for w in waits], lambda rank: _told(waits[rank]))
            results = rules.COLLECTIVE_RULES[wait.name]([w.value for w in waits])
        except PuzzleError as why:
            for other in waits:
                if other is not wait:
                    self._fail(other, type(why)(why.problem))
            raise
        start = max(w.clock for w in waits)
        for other, value in zip(waits, results, strict=True):
            if other is not wait:
                self._wake(other, (value, start))
        return results[wait.rank], start

    def post(self, wait: Posting) -> bool | None:
        """Sends a message, unless the one before it is unread."""
        if wait.rank in self._inboxes[wait.to]:
            self._posting[wait.to][wait.rank] = wait
            return None
        self._deliver(wait)
        return True

    def receive(self, wait: Receiving) -> tuple[int, Message] | None:
        """Takes a message: answers who sent it, and the message."""
        inbox = self._inboxes[wait.rank]
        if wait.source is None:
            for source, message in inbox.items():
                self._offer(wait, source, message)
        elif wait.source in inbox:
            return wait.source, self._take(wait.rank, wait.source)
        return None

    def _deliver(self, post: Posting) -> None:
        self._inboxes[post.to][post.rank] = post.message
        receiver = self._waits[post.to]
        if isinstance(receiver, Receiving):
            if receiver.source is None:
                self._offer(receiver, post.rank, post.message)
            elif receiver.source == post.rank:
                self._wake(receiver, (post.rank, self._take(post.to, post.rank)))

    def _take(self, rank: int, source: int) -> Message:
        message = self._inboxes[rank].pop(source)
        queued = self._posting[rank].pop(source, None)
        if queued is not None:
            self._deliver(queued)
            self._wake(queued, True)
        return message

    def _offer(self, receiver: Receiving, source: int, message: Message) -> None:
        """Notes a message that an open receive could take: first by the clock, then by the sender's rank."""
        self._offered += 1
        start = max(receiver.clock, message.sent)
        heappush(self._offers, (start, message.sent, source, receiver.rank, self._offered, receiver, message))

    def _take_earliest(self) -> bool:
        """Gives the earliest message to the open receive that waits for it, if there is one."""
        while self._offers:
            _, _, source, rank, _, receiver, message = heappop(self._offers)
            if self._waits[rank] is receiver and self._inboxes[rank].get(source) is message:
                self._wake(receiver, (source, self._take(rank, source)))
                return True
        return False

    # --- Waiting, and the end of it ---

    async def stay(self, wait: Wait) -> Any:
        """Waits until another rank, or the end of the waiting, answers."""
        wait.future = self._event_loop().create_future()
        self._waits[wait.rank] = wait
        self._waiting += 1
        self._come_to_rest()
        try:
            return await wait.future
        finally:
            if self._waits[wait.rank] is wait:  # cancelled from outside
                self._leave(wait)

    def _leave(self, wait: Wait) -> None:
        self._waits[wait.rank] = None
        self._waiting -= 1
        self._still -= 1
        self._moves += 1
        if isinstance(wait, Joining) and self._joining[wait.rank] is wait:
            self._joining[wait.rank] = None
            self._joined -= 1
        elif isinstance(wait, Posting) and self._posting[wait.to].get(wait.rank) is wait:
            del self._posting[wait.to][wait.rank]

    def _wake(self, wait: Wait, result: Any) -> None:
        assert wait.future is not None
        self._leave(wait)
        if not wait.future.done():
            wait.future.set_result(result)

    def _fail(self, wait: Wait, why: PuzzleError) -> None:
        assert wait.future is not None
        self._leave(wait)
        if not wait.future.done():
            wait.future.set_exception(why)

    def _come_to_rest(self) -> None:
        self._still += 1
        if self._still < self.size.ranks or not self._waiting:
            return
        if self._supervised or self._waiting == self.size.ranks:
            self.stand_still()
        elif not self._look_planned:
            # Ranks that start after this one, or whose helper task just ended, get their turn first.
            self._look_planned = True
            self._event_loop().call_soon(self._look)

    def _look(self) -> None:
        self._look_planned = False
        if self._still == self.size.ranks and self._waiting and not self._take_earliest():
            self._event_loop().call_later(GRACE, self._look_again, self._moves)

    def _look_again(self, moves: int) -> None:
        if self._still == self.size.ranks and self._waiting:
            if moves == self._moves:
                self.stand_still()
            elif not self._look_planned:
                self._look()

    @property
    def moves(self) -> int:
        """Grows whenever a rank begins or ends something that involves others."""
        return self._moves

    def is_waiting(self, rank: int) -> bool:
        return self._waits[rank] is not None

    def stand_still(self, outside: Mapping[int, str] = MappingProxyType({})) -> bool:
        """Nobody can move: hands over the earliest message that an open receive waits for, or ends the waiting.

        `outside` tells of ranks that wait for something not of this game. False: no rank waits here.
        """
        if self._take_earliest():
            return True
        waits = [wait for wait in self._waits if wait is not None]
        absent = {**self._absences(), **outside}
        why: PuzzleError = DeadlockError(explain([self._described(wait) for wait in waits], absent))
        try:
            calls = [(w.name, w.layer) if w is not None else None for w in self._joining]
            rules.agree(calls, lambda rank: _told(self._joining[rank]))  # type: ignore[arg-type]  # asked for those present
        except MismatchError as mismatch:
            why = mismatch
        for wait in waits:
            self._fail(wait, type(why)(why.problem))
        return bool(waits)

    def _described(self, wait: Wait) -> Standstill:
        if isinstance(wait, Joining):
            missing = [rank for rank, joined in enumerate(self._joining) if joined is None]
            return Standstill(wait.rank, wait.call(), wait.line, "collective", tuple(missing))
        if isinstance(wait, Posting):
            return Standstill(wait.rank, wait.call(), wait.line, "post", (wait.to,))
        assert isinstance(wait, Receiving)
        source = () if wait.source is None else (wait.source,)
        return Standstill(wait.rank, wait.call(), wait.line, "receive", source)

    def _absences(self) -> dict[int, str]:
        absent = {}
        for rank, wait in enumerate(self._waits):
            promised = self.tapes[rank].promised
            if wait is None and promised is not None:
                promised[0].close()  # Python need not warn of it as well
                absent[rank] = f"called {promised[1].call()} on line {promised[1].line} without await"
            elif wait is None and rank not in self.entered:
                absent[rank] = "has no Model"
            elif wait is None:
                absent[rank] = self._ended.get(rank, "has returned or not started")
        return absent

    # --- Which ranks are alive ---

    def supervise(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        """Tells the run every rank's task, so that it knows for sure when one has ended."""
        self._supervised = True
        for rank, task in enumerate(tasks):
            self._watch(rank, task)

    def act(self, rank: int) -> None:
        """Notes that a rank is alive, in the task that runs now."""
        self._moves += 1
        if not self._supervised:
            task = self._current_task()
            if task is not None and self._tasks[rank] is not task:
                self._watch(rank, task)

    def _watch(self, rank: int, task: asyncio.Task[Any]) -> None:
        if self._tasks[rank] is None:
            self._still -= 1
            self._ended.pop(rank, None)
        self._tasks[rank] = task
        task.add_done_callback(lambda done: self._end(rank, done))

    def _end(self, rank: int, task: asyncio.Task[Any]) -> None:
        if self._tasks[rank] is not task:
            return
        self._tasks[rank] = None
        self._moves += 1
        if task.cancelled():
            self._ended[rank] = "was cancelled"
        elif (error := task.exception()) is not None:
            self._ended[rank] = f"stopped with {type(error).__name__} ({str(error):.150})"
        else:
            self._ended[rank] = "has returned"
        self._come_to_rest()


def _told(wait: Joining) -> str:
    return f"rank {wait.rank} calls {wait.call()} on line {wait.line}"
