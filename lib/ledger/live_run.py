"""A run in progress: ranks that wait for others, and what wakes them. Only `waits` creates futures.

Nothing here polls. A rank that has to wait leaves a `Wait`, and the rank that completes it wakes it. When every rank
waits or has ended, no rank can move: then the earliest message goes to a rank that takes any, or there is a deadlock.
An answer before that would depend on the order in which ranks run.

When a call starts and ends is decided by `lanes`, and how ranks meet by `meetings`; the referee uses both as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import count
from types import MappingProxyType
from typing import Any

from lib.errors import DeadlockError, MismatchError, PuzzleError, RuleError, Sentences
from lib.ledger import algebra
from lib.ledger.deadlocks import cycle_of, deadlock_text, nearest_to_cause
from lib.ledger.lanes import Lanes
from lib.ledger.meetings import Call, Mesh, axes_of
from lib.ledger.setting import CLASSIC_SETTING, Game, Setting, Size
from lib.ledger.trace import Trace
from lib.ledger.values import unrecorded

from .recorder import RankRecorder
from .waits import CallWait, Message, ReceiveWait, Wait, Waits


class LiveRun(Waits, Lanes[Message]):
    """The recorders of all ranks, their calls that have not ended, and the waits between ranks."""

    def __init__(self, size: Size, setting: Setting = CLASSIC_SETTING) -> None:
        Lanes.__init__(self, Game.of(size, setting), size.ranks)
        Waits.__init__(self, size.ranks)
        self.size = size
        self.setting = setting
        self.mesh = Mesh(setting.mesh, size.ranks)
        self.recorders = [RankRecorder(rank, self.game, self) for rank in range(size.ranks)]
        self.with_model: set[int] = set()
        self.nearest_to_cause: frozenset[int] = frozenset()
        """After a deadlock: the ranks whose own call explains it."""
        self._offers: list[tuple[int, int, int, int, int, ReceiveWait]] = []
        """Senders of messages that receives from any rank could take, the earliest first: the one whose receive starts
        first, then the one that was sent first, then the one from the lowest rank. A heap, since looking through all
        mailboxes at each standstill takes a tenth of a run with such receives."""
        self._offer = count()

    def trace(self) -> Trace:
        """The trace recorded so far."""
        return Trace(self.size, tuple(tuple(recorder.ops) for recorder in self.recorders), self.setting)

    # --- Each of these answers at once, or returns None: then the rank has to `suspend`. ---

    def receive(self, wait: ReceiveWait) -> tuple[int, Message] | None:
        """Takes a message. Returns its sender and the message."""
        if wait.source is None:
            for source, message in self.mailboxes.unread(wait.rank, wait.tag):
                self._add_offer(wait, source, message)
        elif self.mailboxes.first(wait.source, wait.rank, wait.tag) is not None:
            message = self.mailboxes.take(wait.source, wait.rank, wait.tag)
            self._refill(wait.source)
            return wait.source, message
        return None

    def meet(self, wait: CallWait) -> bool | None:
        """Makes a blocking call, and waits for its end."""
        call = wait.of
        self.issue(call)
        if call.refusal is not None:
            raise copied(call.refusal)
        return True if call.end >= 0 else None

    def ended(self, wait: CallWait) -> bool | None:
        """Waits for the end of a call."""
        if wait.of.end >= 0:
            return True
        refusal = self.refusal_of(wait.of)
        if refusal is not None:
            raise copied(refusal)
        return None

    def settle(self, call: Call) -> None:
        if self.on_lanes:
            call.outputs = tuple([unrecorded(value) for value in call.outputs])
            self.recorders[call.rank].complete(call)
        if call.op.name == "pass_to":
            to, *tag = call.op.args
            self.deliver(call.rank, to, Message(call.payload, call.values, call.end, *tag))
        wait = self._waits[call.rank]
        if isinstance(wait, CallWait) and wait.of is call:
            self._wake(wait, True)

    def refuse(self, calls: Sequence[Call], why: PuzzleError) -> None:
        """Refuses calls that will never start, the calls after them on their lanes, and the calls that use their
        results."""
        for wait in [self._waits[call.rank] for call in calls]:
            if isinstance(wait, CallWait) and self.refusal_of(wait.of) is why:
                self._fail(wait, copied(why))

    def deliver(self, source: int, to: int, message: Message) -> None:
        self.mailboxes.put(source, to, message, message.tag)
        receiver = self._waits[to]
        if isinstance(receiver, ReceiveWait) and receiver.tag == message.tag:
            if receiver.source is None:
                self._add_offer(receiver, source, message)
            elif receiver.source == source:
                self._hand_over(receiver, source)

    def _hand_over(self, receiver: ReceiveWait, source: int) -> None:
        """Gives a waiting rank the first message from `source`. The rank wakes before there is room for the next
        message, which belongs to its next receive."""
        message = self.mailboxes.take(source, receiver.rank, receiver.tag)
        self._wake(receiver, (source, message))
        self._refill(source)

    def _refill(self, source: int) -> None:
        """Lets a sender continue that waits for room in a mailbox."""
        wait = self._waits[source]
        if self.costs.overlap:
            self.retry(source)
        elif isinstance(wait, CallWait) and wait.of.name == "pass_to":
            self.issue(wait.of)

    def _add_offer(self, receiver: ReceiveWait, source: int, message: Message) -> None:
        start = max(receiver.clock, message.sent)
        heappush(self._offers, (start, message.sent, source, receiver.rank, next(self._offer), receiver))

    def _deliver_earliest(self) -> bool:
        """Gives the earliest message to an open receive that waits for it, if there is one."""
        while self._offers:
            _, _, source, rank, _, receiver = heappop(self._offers)
            if self._waits[rank] is receiver:  # else it has got another one; nobody else takes messages for its rank
                self._hand_over(receiver, source)
                return True
        return False

    # --- Waiting, and the end of it ---

    def leave(self, wait: Wait) -> None:
        """Ends a wait that was cancelled from outside; an answered wait has ended."""
        if self._waits[wait.rank] is wait:
            self._withdraw(wait)

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
        """Ends a wait without an answer, and takes a blocking call back."""
        self._advance(wait)
        if isinstance(wait, CallWait) and not self.costs.overlap:
            self.meetings.withdraw(wait.of)

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
            self.require_same_calls()
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
                absent[rank] = self.ending(rank)
        return absent


def copied(why: PuzzleError) -> PuzzleError:
    """A copy of a refusal for another rank, which adds its place."""
    return type(why)(why.problem)


# --- Groups of ranks that can communicate, and share one live run ---


class Dist:
    """A group of ranks that can communicate: `Dist(4)` for ranks 0 to 3.

    `mesh` puts the ranks on named axes, as in `Dist(8, mesh={"dp": 2, "pp": 2, "tp": 2})`; it becomes part of the
    setting. `setting` holds everything else that the game fixes: costs, steps, the kind of layers. Giving a rank a
    second Model starts a new run, so that a notebook cell can be run again.
    """

    def __init__(self, ranks: int, mesh: Mapping[str, int] | None = None, setting: Setting = CLASSIC_SETTING) -> None:
        self.ranks = algebra.whole_number(ranks, "ranks", "Dist", least=1)
        if not isinstance(setting, Setting):
            raise RuleError(SAYS("no setting", got=setting))
        axes = axes_of(setting.mesh if mesh is None else mesh, self.ranks)
        self.setting = setting if axes == setting.mesh else replace(setting, mesh=axes)
        self._run: LiveRun | None = None

    def __repr__(self) -> str:
        return f"Dist({self.ranks})"

    def enter(self, rank: object, layers: object, batches: object) -> tuple[LiveRun, int]:
        """The run that a new Model for `rank` belongs to, and the checked rank.

        Raises:
            RuleError: there is no such rank, or earlier ranks have named another size.
        """
        rank = algebra.number(rank, self.ranks, "rank", "Model")
        size = Size(
            algebra.whole_number(layers, "layers", "Model", least=1),
            algebra.whole_number(batches, "batches", "Model", least=1),
            self.ranks,
        )
        run = self._run
        if run is None or rank in run.with_model:
            run = self._run = LiveRun(size, self.setting)
        elif run.size != size:
            raise RuleError(
                SAYS(
                    "sizes differ",
                    rank=rank,
                    layers=size.layers,
                    batches=size.batches,
                    other=min(run.with_model),
                    other_layers=run.size.layers,
                    other_batches=run.size.batches,
                )
            )
        run.with_model.add(rank)
        return run, rank


SAYS = Sentences(
    {
        "no setting": "Dist: setting must be a Setting, such as Setting(steps=2); got {got!r}",
        "sizes differ": "rank {rank} asks for {layers} layers and {batches} batches, but rank {other} asked for {other_layers} and {other_batches}; all ranks of a Dist share one model: use the same numbers, or make a new Dist",
    }
)
