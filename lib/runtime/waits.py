"""Describes a rank's wait in an operation that involves others: what the rank contributes or waits for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple

from lib.communication.calls import Call, in_group
from lib.communication.deadlock_text import WaitingRank
from lib.communication.lanes import Lanes
from lib.trace.ops import call_text, message_text
from lib.values.base import Value

if TYPE_CHECKING:
    from asyncio import Future


class Message(NamedTuple):
    """A sent message: the payload, the values in it, the tick at which it was sent, and its tag."""

    payload: Any
    values: tuple[Value, ...]
    sent: int
    tag: int = 0


@dataclass(slots=True, eq=False)
class Wait:
    """One rank's wait in an operation that involves others, from tick `clock` on."""

    rank: int
    clock: int
    line: int
    future: Future[Any] | None = field(default=None, init=False)

    def call(self) -> str:
        """The operation as a message names it: 'receive()'."""
        raise NotImplementedError

    def described(self) -> WaitingRank:
        """This wait in a deadlock message."""
        raise NotImplementedError


@dataclass(slots=True, eq=False)
class CallWait(Wait):
    """A wait for the end of a call: a blocking one, or one that was made before."""

    of: Call
    lanes: Lanes

    def call(self) -> str:
        return f"{'await ' if self.of.name in self.lanes.on_lanes else ''}{self.of.op.call()}"

    def described(self) -> WaitingRank:
        return WaitingRank(
            self.rank, self.call() + in_group(self.of.group), self.line, *self.lanes.why_blocked(self.of)
        )


@dataclass(slots=True, eq=False)
class CopyWait(Wait):
    """A copy between memories, which waits for no other rank."""

    name: str

    def call(self) -> str:
        return call_text(self.name)


@dataclass(slots=True, eq=False)
class SendWait(Wait):
    """A wait to send a message to a full mailbox."""

    to: int
    message: Message
    used: tuple[int, ...]

    @property
    def tag(self) -> int:
        return self.message.tag

    def call(self) -> str:
        return message_text("pass_to", self.to, self.tag)

    def described(self) -> WaitingRank:
        return WaitingRank(self.rank, self.call(), self.line, "post", (self.to,))


@dataclass(slots=True, eq=False)
class ReceiveWait(Wait):
    """A wait for a message from `source`, or from any rank."""

    source: int | None
    tag: int = 0

    def call(self) -> str:
        return message_text("receive", self.source, self.tag)

    def described(self) -> WaitingRank:
        of = () if self.source is None else (self.source,)
        return WaitingRank(self.rank, self.call(), self.line, "receive", of)


class Offers:
    """Messages that receives from any source could take. The earliest is the one whose receive starts first, then the
    one that was sent first, then the one from the lowest rank."""

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
