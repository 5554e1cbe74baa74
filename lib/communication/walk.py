"""Walks a trace: visits the operations of all ranks in an order in which they could have happened.

A rank goes on until it needs others: a collective is visited when its last rank has come to it, a send when the
mailbox has room, a receive when its message is there. Where communication overlaps computation, calls run on lanes, as
in the game (`lanes`): a rank only makes the call, and goes on until it awaits it. The order is one of many, so no
result may depend on it.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from lib.errors import TraceError
from lib.game.setting import Game
from lib.rules.collectives import COLLECTIVES, Group
from lib.trace.ops import Op

from .calls import Call, OpIndex, PendingValue
from .lanes import Lanes
from .meetings import Mailboxes
from .words import SAYS


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


class Walk(Lanes, Generic[C]):
    """Visits every operation; subclasses say what is done there, while the cursor is still at the operation.

    They define the methods `on_...`. A call is visited by `on_call` and `on_end`, on a lane also by `on_await`; a
    blocking send by `on_send`. `buffered` lets sends go on however many messages are unread.
    """

    def __init__(self, game: Game, cursors: Sequence[C], buffered: bool = False) -> None:
        super().__init__(game, len(cursors))
        self.cursors = cursors
        self.mailboxes: Mailboxes[int] = Mailboxes(len(cursors), bounded=not buffered)
        """For each unread message the index of its `pass_to` on the sender."""
        self._runnable = deque(cursors)
        self._visited: C | None = None
        """The rank that has come to a blocking collective last, and goes on by itself."""

    # --- What subclasses say ---

    def on_local(self, cursor: C, op: Op) -> None:
        """Visits an operation that involves no other rank."""

    def on_send(self, cursor: C, op: Op) -> None:
        """Visits a `pass_to`."""

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
        call = cursor.calls.get(op.args[0])
        if call is None:
            raise TraceError(SAYS("not pending", rank=cursor.rank, operation=op.args[0]))
        return call

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
        elif name in COLLECTIVES:
            self._visited = cursor
            call = self.on_call(cursor, op)
            self.issue(call)
            return call.settled
        elif name == "pass_to":
            return self.send(cursor, op)
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

    def send(self, cursor: C, op: Op) -> bool:
        """Visits a `pass_to` if its mailbox has room."""
        to, *tag = op.args
        if to not in range(len(self.cursors)):
            raise TraceError(SAYS("sent to nobody", rank=cursor.rank, to=to))
        if self.mailboxes.full(cursor.rank, to, *tag):
            return False
        self.mailboxes.put(cursor.rank, to, cursor.at, *tag)
        self.on_send(cursor, op)
        cursor.at += 1
        self._wake(self.cursors[to], "receive", (cursor.rank, *tag))
        return True

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
        if not call.settled:
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
        if op.name not in self.on_lanes:
            cursor.clock = call.end
            cursor.at += 1
            if cursor is not self._visited:
                self._runnable.append(cursor)
            return
        if op.name == "pass_to":
            to, *tag = op.args
            self.mailboxes.put(call.rank, to, call.at, *tag)
            self._wake(self.cursors[to], "receive", (call.rank, *tag))
        if cursor.waits_for(call):
            self._runnable.append(cursor)

    def full(self, call: Call) -> bool:
        return self.mailboxes.full(call.rank, *call.op.args)

    def _wake(self, cursor: C, name: str, args: tuple[int, ...]) -> None:
        """Lets a rank go on if it may be waiting for its partner in this operation."""
        if cursor.at < len(cursor.ops):
            op = cursor.ops[cursor.at]
            if op.name == name and op.args == args:
                self._runnable.append(cursor)
