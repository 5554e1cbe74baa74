"""Overlapped calls of a live run, recorded when they are made and completed when their end is known."""

from collections.abc import Sequence
from typing import Any, Protocol

from lib.communication.lanes import Call, Lanes
from lib.communication.meetings import Mailboxes
from lib.errors import PuzzleError
from lib.game.setting import Game
from lib.values.base import unrecorded

from .recorder import RankRecorder
from .waits import Message


class Host(Protocol):
    """The run to which the lanes belong."""

    game: Game
    recorders: list[RankRecorder]
    mailboxes: Mailboxes[Message]

    def deliver(self, source: int, to: int, message: Message) -> None: ...
    def settled(self, call: Call) -> None: ...
    def refused(self, call: Call, why: PuzzleError) -> None: ...


class LiveLanes(Lanes):
    """The pending calls of all ranks of a run."""

    def __init__(self, host: Host) -> None:
        super().__init__(host.game, host.game.played_ranks)
        self._host = host
        self._payloads: dict[Call, Any] = {}

    def send(self, call: Call, payload: Any) -> None:
        """Issues a `pass_to`."""
        self._payloads[call] = payload
        self.issue(call)

    def full(self, call: Call) -> bool:
        return self._host.mailboxes.full(call.rank, *call.op.args)

    def settle(self, call: Call) -> None:
        call.outputs = tuple([unrecorded(value) for value in call.outputs])
        self._host.recorders[call.rank].complete(call)
        if call.op.name == "pass_to":
            to, *tag = call.op.args
            message = Message(self._payloads.pop(call), call.values, call.end, *tag)
            self._host.deliver(call.rank, to, message)
        self._host.settled(call)

    def refuse(self, calls: Sequence[Call], why: PuzzleError) -> None:
        for call in calls:
            self._host.refused(call, why)
