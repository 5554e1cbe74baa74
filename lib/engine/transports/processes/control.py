"""The control channel between processes: completion, failure propagation, deadlock detection.

A waiting device polls, and regularly reads its control messages. If one device has failed, all stop waiting. After some
seconds without progress, a device asks all others for their state (a two-round probe, as in distributed termination
detection). If all answer in two consecutive rounds that they wait, and none has made progress in between, that is a
deadlock. A blocking call could do none of this.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from time import perf_counter
from typing import Any

from lib.engine.player_code import current_player_line
from lib.engine.transports.base import RETURNED, deadlock_text, waiting_text
from lib.errors import DeadlockError, RuleError, Sentence

from .carrier import Carrier

ANSWER_SECONDS = 0.25
"""Seconds within which a waiting device answers a question."""

GRACE_SECONDS = 0.8
"""Seconds that all devices wait, after one has failed, for the others to end too."""


class PeerFailedError(BaseException):
    """Another device has failed, or this one has, and its class has caught the error. A BaseException, because players'
    code may catch every Exception."""


class SourceEndedError(BaseException):
    """The device whose message a loop waits for has ended, so the loop ends too. A BaseException, as above."""


class ControlChannel:
    """This process's end of a communicator for control messages: "ended" reports to all devices, "ask" and "answer"
    look for a deadlock."""

    def __init__(self, patience: float, carrier: Carrier) -> None:
        self.carrier = carrier
        self.world = carrier.control
        self.tag = carrier.first
        self.device = self.world.rank
        self.others = [i for i in range(self.world.size) if i != self.device]
        self.patience = patience
        self.call_number = 0
        """Number of the run's current call; all devices make the same calls."""
        self.ended: dict[int, dict[int, tuple[str, Any]]] = {}
        """By call number and device: the state in which the device ended the call, and its result."""
        self.has_ended = False
        """This device has ended the current call."""
        self.gave_up = False
        """A device did not end in time after another one had failed."""
        self._failed_at = 0.0
        self.progress = 0
        """How many of this device's waits have ended."""
        self._waits_in: object = None
        self._question = 0
        self._answers: dict[int, tuple[str, int]] = {}
        self._previous_answers: dict[int, tuple[str, int]] | None = None
        self._asked_at = 0.0
        self._sending: list[Any] = []

    def wait(self, test: Callable[[], Any], what: object) -> None:
        """Polls until `test` is true."""
        polls = 0
        since = 0.0
        while not test():
            polls += 1
            self.carrier.idle()
            if not polls % self.carrier.polls_per_check:
                since = since or perf_counter()
                self._waits_in = what
                self.poll_control(what)
                since = self._check_deadlock(since)
        self.progress += 1
        self._asked_at, self._previous_answers = 0.0, None

    def poll_control(self, what: object) -> None:
        """Reads all control messages that have arrived. Answers questions with `what`, the call in which this device
        waits."""
        while (come := self.world.improbe(tag=self.tag)) is not None:
            source, kind, *content = come.recv()
            if kind == "ended":
                call_number, outcome = content
                self.ended.setdefault(call_number, {})[source] = outcome
            elif kind == "ask" and what is not None:
                self._send(source, ("answer", content[0], self._state_text(what), self.progress))
            elif kind == "answer" and content[0] == self._question:
                self._answers[source] = (content[1], content[2])
        now = self.ended.setdefault(self.call_number, {})
        for device in self.carrier.lost:
            now.setdefault(device, ("failed", (pickle.dumps(_lost(device, self.world.size)), None)))
        if not self.has_ended and any(outcome[0] == "failed" for outcome in now.values()):
            raise PeerFailedError

    def outcome_of(self, device: int) -> tuple[str, Any]:
        """How a device has ended the current call; ("", None) if it has not."""
        return self.ended.get(self.call_number, {}).get(device, ("", None))

    def finish_call(self, outcome: tuple[str, Any]) -> list[tuple[str, Any]]:
        """Reports to all how this device has ended the call, and waits for the others. Returns the outcomes by
        device."""
        self.has_ended = True
        self._failed_at = 0.0
        for other in self.others:
            self._send(other, ("ended", self.call_number, outcome))
        self.ended.setdefault(self.call_number, {})[self.device] = outcome
        self.wait(self._all_have_ended, "ended")
        now = self.ended.pop(self.call_number)
        self.call_number += 1
        self.has_ended = False
        return [now.get(device, ("lost", None)) for device in range(self.world.size)]

    def _all_have_ended(self) -> bool:
        """True if all have ended the call, or one has failed and the others have had enough time to end."""
        self.poll_control("ended")
        now = self.ended[self.call_number]
        if self._failed_at or any(known[0] == "failed" for known in now.values()):
            self._failed_at = self._failed_at or perf_counter()
            self.gave_up = perf_counter() - self._failed_at > GRACE_SECONDS
        return len(now) > len(self.others) or self.gave_up

    def _check_deadlock(self, since: float) -> float:
        """Asks all others if nothing has moved since `since` for too long. Returns the time to count from."""
        now = perf_counter()
        if self.has_ended:
            return now
        if not self._asked_at:
            if now - since < self.patience:
                return since
            self._ask(now)
        elif len(self._answers) == len(self.others):
            if self._previous_answers == self._answers:
                raise DeadlockError(self._deadlock_text())
            self._previous_answers = self._answers
            self._ask(now)
        elif now - self._asked_at > ANSWER_SECONDS:
            self._asked_at, self._previous_answers = 0.0, None
            return now
        return since

    def _ask(self, now: float) -> None:
        self._question += 1
        self._answers = {}
        self._asked_at = now
        for other in self.others:
            self._send(other, ("ask", self._question))

    def _state_text(self, what: object) -> str:
        if what == "ended":
            return RETURNED
        return waiting_text(what, self.world.size, current_player_line())

    def _deadlock_text(self) -> Sentence:
        states = {device: text for device, (text, _) in self._answers.items()}
        states[self.device] = self._state_text(self._waits_in)
        return deadlock_text(states[device] for device in sorted(states))

    def _send(self, other: int, message: tuple[Any, ...]) -> None:
        self._sending = [request for request in self._sending if not request.Test()]
        self._sending.append(self.world.isend((self.device, *message), other, self.tag))


def _lost(device: int, size: int) -> RuleError:
    return RuleError(f"device {device} of {size} has ended its process in the middle of a run, without an error")
