"""Walks a trace: visits the operations of all ranks in an order in which they could have happened.

A rank goes on until it needs others: a collective is visited when its last rank has come to it, a send when the
mailbox has room, a receive when its message is there. The order is one of many, so no result may depend on it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from lib.errors import TraceError
from lib.rules.collectives import COLLECTIVES, Group
from lib.trace.ops import Op, group_of

from .mailboxes import Mailboxes
from .meetings import Meetings


@dataclass(slots=True, eq=False)
class Cursor:
    """A rank's place in its operations: `at` is the index of the next one."""

    rank: int
    ops: Sequence[Op]
    at: int = 0

    @property
    def op(self) -> Op:
        """The next operation."""
        return self.ops[self.at]

    @property
    def ended(self) -> bool:
        return self.at == len(self.ops)


C = TypeVar("C", bound=Cursor)


class Walk(Generic[C]):
    """Visits every operation; subclasses say what is done there, while the cursor is still at the operation.

    They define `alone`, `meet`, `met`, `sent` and `received`; the walk calls these from `visit`, `join`, `send` and
    `receive`. `buffered` lets sends go on however many messages are unread.
    """

    def __init__(self, cursors: Sequence[C], buffered: bool = False) -> None:
        self.cursors = cursors
        self.meetings: Meetings[C] = Meetings(len(cursors))
        self.mailboxes: Mailboxes[int] = Mailboxes(len(cursors), bounded=not buffered)
        """For each unread message the index of its `pass_to` on the sender."""
        self._ready = deque(cursors)

    def alone(self, cursor: C, op: Op) -> None:
        """Visits an operation that involves no other rank."""

    def meet(self, cursors: Sequence[C]) -> Sequence[Any]:
        """Visits a collective that all ranks have come to, in rank order: what each of them gets."""
        raise NotImplementedError

    def met(self, cursor: C, op: Op, result: Any) -> None:
        """Visits one rank's part of a collective, with what `meet` has returned for it."""

    def sent(self, cursor: C, op: Op) -> None:
        """Visits a `pass_to`."""

    def received(self, cursor: C, op: Op, sender: C, sent_at: int) -> None:
        """Visits a `receive` of the message that the sender's operation `sent_at` has sent."""

    def walk(self) -> list[C]:
        """Visits every operation that can be reached. Returns the ranks that wait for ever."""
        while self._ready:
            self.go_on(self._ready.popleft())
        return [cursor for cursor in self.cursors if not cursor.ended]

    def go_on(self, cursor: C) -> None:
        """Visits one rank's operations until it ends or has to wait for another."""
        ops, visit = cursor.ops, self.visit
        while cursor.at < len(ops) and visit(cursor, ops[cursor.at]):
            pass

    def visit(self, cursor: C, op: Op) -> bool:
        """Visits one operation and moves the cursor on; False if the rank has to wait."""
        if op.name in COLLECTIVES:
            return self.join(cursor, group_of(op))
        if op.name == "pass_to":
            return self.send(cursor, op)
        if op.name == "receive":
            return self.receive(cursor, op)
        self.alone(cursor, op)
        cursor.at += 1
        return True

    def join(self, cursor: C, group: Group | None = None) -> bool:
        """Visits a collective on all ranks of its group if this one is the last to come."""
        cursors = self.meetings.of(group).come(cursor.rank, cursor)
        if cursors is None:
            return False
        for other, result in zip(cursors, self.meet(cursors), strict=True):
            self.met(other, other.ops[other.at], result)
            other.at += 1
            if other is not cursor:
                self._ready.append(other)
        return True

    def send(self, cursor: C, op: Op) -> bool:
        """Visits a `pass_to` if its mailbox has room."""
        to, *tag = op.args
        if to not in range(len(self.cursors)):
            raise TraceError(f"rank {cursor.rank} sends to rank {to}, which does not exist")
        if self.mailboxes.full(cursor.rank, to, *tag):
            return False
        self.mailboxes.put(cursor.rank, to, cursor.at, *tag)
        self.sent(cursor, op)
        cursor.at += 1
        self.wake_receiver(cursor, op)
        return True

    def receive(self, cursor: C, op: Op) -> bool:
        """Visits a `receive` if its message is there."""
        source, *tag = op.args
        if self.mailboxes.first(source, cursor.rank, *tag) is None:
            return False
        sender = self.cursors[source]
        self.received(cursor, op, sender, self.mailboxes.take(source, cursor.rank, *tag))
        cursor.at += 1
        self._wake(sender, "pass_to", (cursor.rank, *tag))
        return True

    def wake(self, cursor: C) -> None:
        """Lets a rank go on later, if it can."""
        self._ready.append(cursor)

    def wake_receiver(self, cursor: C, op: Op) -> None:
        """Lets a rank go on that may be waiting for the message that `op` has sent."""
        to, *tag = op.args
        self._wake(self.cursors[to], "receive", (cursor.rank, *tag))

    def _wake(self, cursor: C, name: str, args: tuple[int, ...]) -> None:
        """Lets a rank go on if it may be waiting for its partner in this operation."""
        if cursor.at < len(cursor.ops):
            op = cursor.ops[cursor.at]
            if op.name == name and op.args == args:
                self._ready.append(cursor)
