"""A run in progress: suspends ranks that wait for others, and wakes them. Only this file creates futures.

Nothing here polls. A rank that has to wait leaves a `Wait`, and the rank that completes it wakes it. When every rank
waits or has ended, no rank can move: then the earliest message goes to a rank that takes any, or there is a deadlock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from lib.communication.calls import Call
from lib.communication.deadlock_text import cycle_of, deadlock_text, nearest_to_cause
from lib.communication.lanes import Lanes
from lib.communication.meetings import Mailboxes, require_same_call
from lib.communication.mesh import Mesh
from lib.errors import DeadlockError, MismatchError, PuzzleError
from lib.game.setting import CLASSIC_SETTING, Game, Setting, Size
from lib.trace.ops import Trace
from lib.values.base import unrecorded

from .deadlock_detection import DeadlockDetector, RankTasks
from .recorder import RankRecorder
from .waits import CallWait, Message, Offers, ReceiveWait, SendWait, Wait

if TYPE_CHECKING:
    from asyncio import Future, Task


class LiveLanes(Lanes):
    """The calls of all ranks of a run that have not ended."""

    def __init__(self, run: LiveRun) -> None:
        super().__init__(run.game, run.game.ranks)
        self._run = run
        self._payloads: dict[Call, Any] = {}

    def send(self, call: Call, payload: Any) -> None:
        """Issues a `pass_to`."""
        self._payloads[call] = payload
        self.issue(call)

    def full(self, call: Call) -> bool:
        return self._run.mailboxes.full(call.rank, *call.op.args)

    def settle(self, call: Call) -> None:
        if self.on_lanes:
            call.outputs = tuple([unrecorded(value) for value in call.outputs])
            self._run.recorders[call.rank].complete(call)
        if call.op.name == "pass_to":
            to, *tag = call.op.args
            message = Message(self._payloads.pop(call), call.values, call.end, *tag)
            self._run.deliver(call.rank, to, message)
        self._run.settled(call)

    def refuse(self, calls: Sequence[Call], why: PuzzleError) -> None:
        for call in calls:
            self._run.refused(call, why)


class LiveRun:
    """The recorders of all ranks, and the waits between ranks."""

    def __init__(self, size: Size, setting: Setting = CLASSIC_SETTING) -> None:
        import asyncio  # here, because it takes longer to import than all of lib

        self.size = size
        self.setting = setting
        self.game = Game.of(size, setting)
        self.costs = setting.costs
        self.mesh = Mesh(setting.mesh, size.ranks)
        ranks = size.ranks
        self.recorders = [RankRecorder(rank, self.game, self) for rank in range(ranks)]
        self.with_model: set[int] = set()
        self.nearest_to_cause: frozenset[int] = frozenset()
        """After a deadlock: the ranks whose own call explains it."""
        self._loop = asyncio.get_running_loop
        self._detector = DeadlockDetector(
            ranks, asyncio.get_running_loop, self._deliver_earliest, self.resolve_deadlock
        )
        self._tasks = RankTasks(ranks, self._detector, asyncio.current_task)
        self.act = self._tasks.act
        """Records that a rank is alive."""
        self.other_rank = self._tasks.other
        self._waits: list[Wait | None] = [None] * ranks
        self.mailboxes: Mailboxes[Message] = Mailboxes(ranks)
        self._posting: dict[tuple[int, int, int], SendWait] = {}
        """By sender, receiver and tag: the wait for a full mailbox."""
        self._offers = Offers()
        self.lanes = LiveLanes(self)

    def trace(self) -> Trace:
        """The trace recorded so far."""
        return Trace(self.size, tuple(tuple(recorder.ops) for recorder in self.recorders), self.setting)

    def supervise(self, tasks: Sequence[Task[Any]]) -> None:
        """Takes every rank's task, so that it is certain when a rank has ended."""
        self._tasks.supervise(tasks)

    @property
    def moves(self) -> int:
        """Counts how often a rank has begun or ended something that involves others."""
        return self._detector.moves

    # --- Each of these answers at once, or returns None: then the rank has to `suspend`. ---

    def post(self, wait: SendWait) -> bool | None:
        """Sends a message, unless the one before it is unread."""
        if self.mailboxes.full(wait.rank, wait.to, wait.tag):
            self._posting[wait.rank, wait.to, wait.tag] = wait
            return None
        self.deliver(wait.rank, wait.to, wait.message)
        return True

    def receive(self, wait: ReceiveWait) -> tuple[int, Message] | None:
        """Takes a message. Returns its sender and the message."""
        if wait.source is None:
            for source, message in self.mailboxes.unread(wait.rank, wait.tag):
                self._offers.add(wait, source, message)
        elif self.mailboxes.first(wait.source, wait.rank, wait.tag) is not None:
            message = self.mailboxes.take(wait.source, wait.rank, wait.tag)
            self._refill(wait.source, wait.rank, wait.tag)
            return wait.source, message
        return None

    def meet(self, wait: CallWait) -> bool | None:
        """Makes a blocking call, and waits for its end."""
        call = wait.of
        self.lanes.issue(call)
        if call.refusal is not None:
            raise copied(call.refusal)
        return True if call.end >= 0 else None

    def ended(self, wait: CallWait) -> bool | None:
        """Waits for the end of a call."""
        if wait.of.end >= 0:
            return True
        refusal = wait.lanes.refusal_of(wait.of)
        if refusal is not None:
            raise copied(refusal)
        return None

    def settled(self, call: Call) -> None:
        """Wakes the rank that awaits a call, whose start and end are now known."""
        wait = self._waits[call.rank]
        if isinstance(wait, CallWait) and wait.of is call:
            self._wake(wait, True)

    def refused(self, call: Call, why: PuzzleError) -> None:
        """Refuses a call that will never start, the calls after it on its lane, and the calls that use its results."""
        wait = self._waits[call.rank]
        if isinstance(wait, CallWait) and wait.lanes.refusal_of(wait.of) is why:
            self._fail(wait, copied(why))

    def deliver(self, source: int, to: int, message: Message) -> None:
        self.mailboxes.put(source, to, message, message.tag)
        receiver = self._waits[to]
        if isinstance(receiver, ReceiveWait) and receiver.tag == message.tag:
            if receiver.source is None:
                self._offers.add(receiver, source, message)
            elif receiver.source == source:
                self._hand_over(receiver, source)

    def _hand_over(self, receiver: ReceiveWait, source: int) -> None:
        """Gives a waiting rank the first message from `source`. The rank wakes before there is room for the next
        message, which belongs to its next receive."""
        message = self.mailboxes.take(source, receiver.rank, receiver.tag)
        self._wake(receiver, (source, message))
        self._refill(source, receiver.rank, receiver.tag)

    def _refill(self, source: int, to: int, tag: int) -> None:
        """Lets a sender continue that waits for room in a mailbox."""
        queued = self._posting.pop((source, to, tag), None)
        if queued is not None:
            self.deliver(source, to, queued.message)
            self._wake(queued, True)
        if self.costs.overlap:
            self.lanes.retry(source)

    def _deliver_earliest(self) -> bool:
        """Gives the earliest message to an open receive that waits for it, if there is one."""
        offer = self._offers.earliest(self._is_open)
        if offer is None:
            return False
        self._hand_over(*offer)
        return True

    def _is_open(self, receiver: ReceiveWait, source: int, message: Message) -> bool:
        waits = self._waits[receiver.rank] is receiver
        return waits and self.mailboxes.first(source, receiver.rank, receiver.tag) is message

    # --- Waiting, and the end of it ---

    def suspend(self, wait: Wait) -> Future[Any]:
        """The future that a rank awaits until another rank or the end of the waiting answers it; then the rank must
        `leave`."""
        future = wait.future = self._loop().create_future()
        self._waits[wait.rank] = wait
        self._detector.wait()
        return future

    def leave(self, wait: Wait) -> None:
        """Ends a wait that was cancelled from outside; an answered wait has ended."""
        if self._waits[wait.rank] is wait:
            self._withdraw(wait)

    def is_waiting(self, rank: int) -> bool:
        return self._waits[rank] is not None

    def _advance(self, wait: Wait) -> None:
        self._waits[wait.rank] = None
        self._detector.advance()

    def _wake(self, wait: Wait, result: Any) -> None:
        assert wait.future is not None
        self._advance(wait)
        if not wait.future.done():
            wait.future.set_result(result)

    def _fail(self, wait: Wait, why: PuzzleError) -> None:
        assert wait.future is not None
        self._withdraw(wait)
        if not wait.future.done():
            wait.future.set_exception(why)

    def _withdraw(self, wait: Wait) -> None:
        """Ends a wait without an answer, and withdraws the rank's offers."""
        self._advance(wait)
        if isinstance(wait, CallWait):
            if not self.costs.overlap:
                self.lanes.meetings.of(wait.of.group).withdraw(wait.rank, wait.of)
        elif isinstance(wait, SendWait) and self._posting.get((wait.rank, wait.to, wait.tag)) is wait:
            del self._posting[wait.rank, wait.to, wait.tag]

    def resolve_deadlock(self, outside: Mapping[int, str] = MappingProxyType({})) -> bool:
        """Ends a standstill: hands over the earliest message that an open receive waits for, or fails every wait.

        `outside` describes ranks that wait for something outside this run. Returns False if no rank waits here.
        """
        if self._deliver_earliest():
            return True
        waits = [wait for wait in self._waits if wait is not None]
        why = self._why_nobody_moves(waits, {**self._absences(), **outside})
        for wait in waits:
            self._fail(wait, copied(why))
        return bool(waits)

    def _why_nobody_moves(self, waits: Sequence[Wait], absent: Mapping[int, str]) -> PuzzleError:
        try:
            for meeting in self.lanes.meetings.pending():
                require_same_call([call for _, call in sorted(meeting.arrived().items())], bool(self.mesh.axes))
        except MismatchError as mismatch:
            return mismatch
        described = [wait.described() for wait in waits]
        unread = [(source, rank) for rank in range(self.size.ranks) for source, _ in self.mailboxes.unread(rank)]
        cycle = cycle_of(described)
        in_cycle = {rank for rank, _ in cycle}
        receivers = [wait.rank for wait in waits if isinstance(wait, ReceiveWait)]
        results = {rank: self.recorders[rank].unsent(own=rank in in_cycle) for rank in receivers}
        unsent = {rank: str(value) for rank, value in results.items() if value is not None}
        self.nearest_to_cause = nearest_to_cause(described, absent, unread, unsent)
        return DeadlockError(deadlock_text(described, absent, cycle, bool(self.mesh.axes), unread, unsent))

    def _absences(self) -> dict[int, str]:
        """The ranks that do not wait, each with the reason as a message words it."""
        absent = {}
        for rank, wait in enumerate(self._waits):
            unawaited = self.recorders[rank].unawaited
            if wait is None and unawaited is not None:
                unawaited[0].close()  # Python need not warn of it as well
                absent[rank] = f"called {unawaited[1].call()} on line {unawaited[1].line} without await"
            elif wait is None and rank not in self.with_model:
                absent[rank] = "has no Model"
            elif wait is None:
                absent[rank] = self._tasks.ending(rank)
        return absent


def copied(why: PuzzleError) -> PuzzleError:
    """A copy of a refusal for another rank, which adds its place."""
    return type(why)(why.problem)
