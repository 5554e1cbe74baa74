"""Lanes: communication that overlaps with a rank's computation, the calls of one lane one after the other.

A call is issued at its rank's clock and joined by `await`. It starts when every member of its group has issued it, the
call before it on each member's lane has ended, and its inputs exist; the rank computes on meanwhile. All of this is a
maximum of sums, so no figure depends on the order in which ranks are started or visited.

Two decisions, from what `work = dist.all_gather(..., async_op=True); work.wait()` does in PyTorch:
- What a call makes may be brought to another call before it is awaited: its handle is passed instead of a value. As on
  a stream, the second call starts after the first has ended, and the rank's clock does not move. That is how a
  reduce-scatter within a machine is followed by an all-reduce between machines (hybrid sharding). Every handle is still
  awaited once, since `wait` is what lets the buffers go.
- A rank has one lane for the calls of all groups, since they share a link: two lanes would give each the whole of it.
  Programs that call the collectives of two groups in different orders deadlock, which NCCL warns of as well. Where
  groups do have links of their own (tensor parallelism inside a machine, data parallelism between machines), costs with
  `lanes="group"` have a lane for each group, as NCCL has a stream for each process group, and with "each"
  also one for the messages to every rank. Copies to and from a tier always have lanes of their own.

A call that blocks its rank is one that the rank awaits at once: it is on no lane, and starts when its rank is ready.

Shared by the live run and the referee, each with its own lanes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from lib.errors import PuzzleError
from lib.ledger import operations
from lib.ledger.algebra import named
from lib.ledger.collectives import COLLECTIVES, Group, require_contribution
from lib.ledger.costs import ON_TIER, Costs
from lib.ledger.setting import Game
from lib.ledger.trace import Op
from lib.ledger.updates import tier_ticks
from lib.ledger.values import Value

from .meetings import Call, Lane, Mailboxes, Meetings, OpIndex, PendingValue, message_ticks, require_same_call, results
from .meetings import ticks as collective_ticks

LANES: Mapping[str, str] = {
    **dict.fromkeys(COLLECTIVES, "network"),
    "pass_to": "network",
    "offload": "down",
    "fetch": "up",
    "move": "between tiers",
    "tier_update": "processor",
}
"""The kind of lane of each operation that overlaps with computation, where costs have `overlap`."""


def overlapped(costs: Costs) -> Collection[str]:
    """The operations that overlap with computation: those with a lane, where costs have `overlap`."""
    return LANES if costs.overlap else ()


def computing(op: Op, costs: Costs) -> bool:
    """True if an event keeps its rank busy: not if it runs on a lane."""
    return op.name not in overlapped(costs)


def clocks(ops: Iterable[Op], costs: Costs) -> Iterator[int]:
    """One rank's clock at each of its operations, in ticks: when an operation starts, or when a call is made."""
    clock, lanes = 0, overlapped(costs)
    for op in ops:
        if op.name not in lanes:
            yield op.start
            clock = op.end
        else:
            yield clock


M = TypeVar("M")


class Lanes(Generic[M]):
    """The calls of all ranks that have not ended: on lanes, or blocking their rank; and the unread messages. Subclasses
    say what follows when a call is settled or refused. `buffered` lets sends go on however many messages are unread."""

    def __init__(self, game: Game, ranks: int, buffered: bool = False) -> None:
        self.game = game
        self.costs = game.setting.costs
        self.on_lanes = frozenset(overlapped(self.costs))
        """The operations that are called on lanes; other calls are blocking."""
        self.meetings = Meetings(ranks)
        self.mailboxes: Mailboxes[M] = Mailboxes(ranks, bounded=not buffered)
        self._lanes: list[dict[tuple[str, Group | None], Lane]] = [{} for _ in range(ranks)]
        """For each rank its lanes by their kind, and by the group that they are of where groups have their own."""

    def settle(self, call: Call) -> None:
        """Notes that a call's start, end and results are known; `cause` is by now what set its start."""
        raise NotImplementedError

    def refuse(self, calls: Sequence[Call], why: PuzzleError) -> None:
        """Notes that calls do not fit together: they, and the calls behind them, never start."""
        raise NotImplementedError

    def issue(self, call: Call) -> None:
        """Settles a blocking call if it can be settled now. Puts another call on its lane, and settles whatever can be
        settled now."""
        if call.op.name not in self.on_lanes:
            call.values = call.inputs  # type: ignore[assignment]  # no other call of this rank is pending
            if call.op.name != "pass_to":
                self._settle_with(call)
            elif not self.mailboxes.full(
                call.rank, *call.op.args
            ):  # most of all calls: it meets no other, and is on no lane
                call.start, call.last = call.clock, (call.rank, call.at)
                call.end = call.start + self.ticks((call,), ((),))
                self.settle(call)
            return
        lanes, which = self._lanes[call.rank], self._which(call)
        lane = call.lane = lanes.get(which) or lanes.setdefault(which, Lane())
        lane.calls.append(call)
        if lane.calls[0] is call:
            self._settle_from([call])

    def retry(self, rank: int) -> None:
        """Settles what can be settled now that a waiting call of a rank can go on."""
        self._settle_from(self._heads(rank))

    def _which(self, call: Call) -> tuple[str, Group | None]:
        """The kind of a call's lane, and the group that the lane is of."""
        if self.costs.lanes == "each" and call.op.name == "pass_to":
            return f"to rank {call.op.args[0]}", None
        return LANES[call.op.name], None if self.costs.lanes == "one" else call.group

    def _heads(self, rank: int) -> list[Call]:
        return [lane.calls[0] for lane in self._lanes[rank].values() if lane.calls]

    def _settle_from(self, heads: list[Call]) -> None:
        for call in heads:  # which become more
            if call.end < 0 and call.refusal is None and call.ready():
                for settled in self._settle_with(call):
                    heads += self._heads(settled.rank)

    def _settle_with(self, call: Call) -> Sequence[Call]:
        """Settles a call that is ready, and those that start with it, if all of these are ready. Returns them."""
        calls: Sequence[Call] = [call]
        try:
            if call.op.name in COLLECTIVES:
                if call.lane is not None:
                    self.require_inputs(call)
                calls = self.meetings.arrive(call)
            elif call.op.name == "pass_to" and self.mailboxes.full(call.rank, *call.op.args):
                return ()
            if not calls:
                return ()
            outputs: Sequence[tuple[Value, ...]] = [()] if call.op.name == "pass_to" else self.perform(calls)
        except PuzzleError as why:
            for member in calls:
                member.refusal = why
            self.refuse(calls, why)
            return ()
        self._settle(calls, outputs)
        return calls

    def require_inputs(self, call: Call) -> None:
        """Refuses a collective that is first on its lane, if what an earlier call has made may not take part."""
        for part, value in zip(call.inputs, call.values):
            if type(part) is PendingValue:
                require_contribution(self.game, call.name, value)

    def perform(self, calls: Sequence[Call]) -> Sequence[tuple[Value, ...]]:
        """What each of some calls that belong together makes; a message makes nothing."""
        first, name = calls[0], calls[0].op.name
        if name in COLLECTIVES:
            return results(calls, self.game)
        return [operations.LOCAL_RULES[name](self.game, first.op, first.values)]

    def _settle(self, calls: Sequence[Call], outputs: Sequence[tuple[Value, ...]]) -> None:
        start, cause, last = -1, None, calls[0]
        for call in calls:
            ready, by = (call.clock, call.cause) if call.lane is None else self._ready_at(call, call.lane)
            if ready > start:
                start, cause, last = ready, by, call
        end, place = start + self.ticks(calls, outputs), last.place
        for call, values in zip(calls, outputs):
            call.start, call.end, call.cause, call.last, call.outputs = start, end, cause, place, values
            if call.lane is not None:
                call.lane.last = call.lane.calls.popleft()
                call.lane = None
        for call in calls:
            self.settle(call)

    def _ready_at(self, call: Call, lane: Lane) -> tuple[int, OpIndex | None]:
        """The tick from which on a rank and its lane are ready for a call, and the event that set it."""
        ready, by = call.clock, call.cause
        before = lane.last
        if before is not None and before.end > ready:
            ready, by = before.end, before.place
        for part in call.inputs:
            if type(part) is PendingValue and part.call.end > ready:
                ready, by = part.call.end, part.call.place
        return ready, by

    def ticks(self, calls: Sequence[Call], outputs: Sequence[tuple[Value, ...]]) -> int:
        """How long calls take that belong together."""
        first, name = calls[0], calls[0].op.name
        if name in ON_TIER:
            return tier_ticks(self.costs, name, outputs[0], first.values)
        if name in COLLECTIVES:
            return collective_ticks(calls, self.game)
        return message_ticks(name, first.values, self.costs, (first.rank, *first.op.args[:1]))

    def refusal_of(self, call: Call) -> PuzzleError | None:
        """The refusal, of a call before it or of what makes what they use, because of which a call will never start."""
        waiting, seen = [call], set[Call]()
        for blocked in waiting:  # which become more
            head = blocked.lane.calls[0] if blocked.lane else blocked
            if head in seen:
                continue
            if head.refusal is not None:
                return head.refusal
            seen.add(head)
            waiting += [part.call for part in head.inputs if type(part) is PendingValue]
        return None

    def require_same_calls(self) -> None:
        """Refuses calls that wait for each other and differ."""
        for calls in self.meetings.pending():
            require_same_call(calls, bool(self.game.setting.mesh))

    def why_blocked(self, call: Call) -> tuple[str, tuple[int, ...], str]:
        """Why a call that was issued does not start: the kind of wait, the ranks it is for, and the words."""
        if call.lane is None:
            if call.name == "pass_to":
                return "post", call.op.args[:1], ""
            return "collective", self.meetings.missing(call.group), ""
        head = call.lane.calls[0]
        behind = "" if head is call else f"behind {head}, which waits "
        if not head.ready():
            before = next(part.call for part in head.inputs if type(part) is PendingValue and part.call.end < 0)
            return "lane", (call.rank,), f"{behind}for what {before} makes"
        if head.name == "pass_to":
            return "post", head.op.args[:1], f"{behind}until rank {head.op.args[0]} reads the message before it"
        missing = self.meetings.missing(head.group)
        lanes = {rank: self._lanes[rank].get(self._which(call)) for rank in missing}
        heads = {rank: lane.calls[0] if lane and lane.calls else None for rank, lane in lanes.items()}
        if not any(heads.values()):
            return "collective", missing, f"{behind}for {named('rank', missing)}"
        ranks = [f"rank {rank}{f', whose lane is held by {by}' if by else ''}" for rank, by in heads.items()]
        return "lane", missing, f"{behind}for {', and for '.join(ranks)}"


# --- A walk through a trace: the operations of all ranks in an order in which they could have happened ---
#
# A rank goes on until it needs others: a collective is visited when its last rank has come to it, a send when the
# mailbox has room, a receive when its message is there. Where communication overlaps computation, a rank only makes the
# call, and goes on until it awaits it. The order is one of many, so no result may depend on it.


@dataclass(slots=True, eq=False)
class Cursor:
    """A rank's place in its operations: `at` is the index of the next one."""

    rank: int
    ops: Sequence[Op]
    at: int = 0
    clock: Any = 0
    calls: dict[int, Call] = field(default_factory=dict)
    """The calls that were not awaited yet, by index."""
    pending: dict[int, Call] = field(default_factory=dict)
    """By number of a value: the call that makes it, which was not awaited yet."""

    @property
    def op(self) -> Op:
        """The next operation."""
        return self.ops[self.at]

    @property
    def ended(self) -> bool:
        return self.at == len(self.ops)

    def last_event(self) -> OpIndex | None:
        """The event that set the clock, for walks that ask for it."""
        return None

    def waits_for(self, call: Call) -> bool:
        """True if the next operation needs the end of a call."""
        op = self.ops[self.at] if self.at < len(self.ops) else None
        return op is not None and op.name == "await" and op.args == (call.at,)


C = TypeVar("C", bound=Cursor)


class Walk(Lanes[int], Generic[C]):
    """Visits every operation; subclasses say what is done there, while the cursor is still at the operation.

    They define the methods `on_...`. A call is visited by `on_call` and `on_end`, on a lane also by `on_await`. A
    message is the index of its `pass_to` on the sender.
    """

    def __init__(self, game: Game, cursors: Sequence[C], buffered: bool = False) -> None:
        super().__init__(game, len(cursors), buffered)
        self.cursors = cursors
        self._runnable = deque(cursors)
        self._visited: C | None = None
        """The rank that has come to a blocking call last, and goes on by itself."""

    # --- What subclasses say ---

    def on_local(self, cursor: C, op: Op) -> None:
        """Visits an operation that involves no other rank."""

    def on_receive(self, cursor: C, op: Op, sender: C, sent_at: int) -> None:
        """Visits a `receive` of the message that the sender's operation `sent_at` has sent."""

    def on_call(self, cursor: C, op: Op) -> Call:
        """Visits an operation that makes a call. Returns the call."""
        raise NotImplementedError

    def on_end(self, cursor: C, call: Call) -> None:
        """Visits the end of a call: its start, its end and what it makes are known."""

    def on_await(self, cursor: C, op: Op, call: Call) -> None:
        """Visits an `await` of a call that has ended."""
        cursor.clock = max(cursor.clock, call.end)

    def awaited(self, cursor: C, op: Op) -> Call:
        """The call that an `await` names."""
        return cursor.calls[op.args[0]]

    # --- The walk ---

    def walk(self) -> list[C]:
        """Visits every operation that can be reached. Returns the ranks that wait for ever."""
        while self._runnable:
            self.advance(self._runnable.popleft())
        return [cursor for cursor in self.cursors if not cursor.ended]

    def advance(self, cursor: C) -> None:
        """Visits one rank's operations until it ends or has to wait for another."""
        ops, visit = cursor.ops, self.visit
        while cursor.at < len(ops) and visit(cursor, ops[cursor.at]):
            pass

    def visit(self, cursor: C, op: Op) -> bool:
        """Visits one operation and moves the cursor on; False if the rank has to wait."""
        name = op.name
        if name in self.on_lanes:
            call = self.on_call(cursor, op)
            cursor.calls[cursor.at] = call
            for number in op.outputs:
                cursor.pending[number] = call
            self.issue(call)
        elif name == "pass_to" or name in COLLECTIVES:
            self._visited = cursor
            call = self.on_call(cursor, op)
            self.issue(call)
            return call.end >= 0
        elif name == "receive":
            return self.receive(cursor, op)
        elif name == "await":
            return self.join(cursor, op)
        else:
            self.on_local(cursor, op)
        cursor.at += 1
        return True

    @staticmethod
    def call(cursor: C, op: Op, group: Group | None, inputs: Sequence[Any]) -> Call:
        """The call that a rank's next operation makes, of `inputs`; one that is pending is replaced."""
        pending = cursor.pending
        if not pending.keys().isdisjoint(op.inputs):
            calls = map(pending.get, op.inputs)
            inputs = [
                PendingValue(call, call.op.outputs.index(number)) if call else value
                for call, number, value in zip(calls, op.inputs, inputs)
            ]
        return Call(cursor.rank, cursor.at, cursor.clock, cursor.last_event(), op, group, tuple(inputs))

    def receive(self, cursor: C, op: Op) -> bool:
        """Visits a `receive` if its message is there."""
        source, *tag = op.args
        if self.mailboxes.first(source, cursor.rank, *tag) is None:
            return False
        sender = self.cursors[source]
        self.on_receive(cursor, op, sender, self.mailboxes.take(source, cursor.rank, *tag))
        cursor.at += 1
        if self.on_lanes:
            self.retry(source)
        else:
            self._wake(sender, "pass_to", (cursor.rank, *tag))
        return True

    def join(self, cursor: C, op: Op) -> bool:
        """Visits an `await` if its call has ended."""
        call = self.awaited(cursor, op)
        if call.end < 0:
            return False
        self.on_await(cursor, op, call)
        del cursor.calls[call.at]
        for number in call.op.outputs:
            del cursor.pending[number]
        cursor.at += 1
        return True

    def settle(self, call: Call) -> None:
        cursor, op = self.cursors[call.rank], call.op
        self.on_end(cursor, call)
        blocking = op.name not in self.on_lanes
        if blocking:
            cursor.clock = call.end
            cursor.at += 1
        if op.name == "pass_to":
            to, *tag = op.args
            self.mailboxes.put(call.rank, to, call.at, *tag)
            self._wake(self.cursors[to], "receive", (call.rank, *tag))
        if cursor is not self._visited if blocking else cursor.waits_for(call):
            self._runnable.append(cursor)

    def refuse(self, calls: Sequence[Call], why: PuzzleError) -> None:
        raise why

    def _wake(self, cursor: C, name: str, args: tuple[int, ...]) -> None:
        """Lets a rank go on if it may be waiting for its partner in this operation."""
        if cursor.at < len(cursor.ops):
            op = cursor.ops[cursor.at]
            if op.name == name and op.args == args:
                self._runnable.append(cursor)
