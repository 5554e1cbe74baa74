"""News between processes: who has ended a call and how, and whether everybody waits.

A device that waits polls, and now and then looks here. If a device has failed, waiting is over for all. After some
seconds without progress it asks the others what they are doing; when twice in a row everyone answers that they wait,
and nobody has moved in between, that is a deadlock.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any

from mpi4py import MPI

from lib.engine.call import place_here, told_in_group
from lib.errors import DeadlockError

SPINS = 64
"""Polls between two looks."""

ANSWERS = 0.25
"""Seconds within which a device that waits has answered."""

GRACE = 0.8
"""Seconds that a device which has failed waits for the others to end as well."""


class Stopped(BaseException):
    """Another device has failed. Not an Exception, which players' code may well catch."""


class Wire:
    """This process's end of a communicator that only carries news."""

    def __init__(self, patience: float) -> None:
        self.world = MPI.COMM_WORLD.Dup()
        self.device = self.world.rank
        self.others = [i for i in range(self.world.size) if i != self.device]
        self.patience = patience
        self.number = 0
        """Of the call of the run."""
        self.ended: dict[int, dict[int, tuple[str, Any]]] = {}
        """By number of the call: how devices have ended it."""
        self.written: dict[int, list[deque[Any]]] = {}
        """By number of the call: the outputs that devices have written to its stream."""
        self.ending = False
        self.given_up = False
        self._failed_at = 0.0
        self._moves = 0
        self._doing: object = None
        self._question = 0
        self._answers: dict[int, tuple[str, int]] = {}
        self._before: dict[int, tuple[str, int]] | None = None
        self._asked = 0.0
        self._sending: list[Any] = []

    def wait(self, test: Callable[[], Any], what: object) -> None:
        """Polls until `test` is true.

        Raises:
            Stopped: another device has failed.
            DeadlockError: nobody can move.
        """
        spins = 0
        since = 0.0
        while not test():
            spins += 1
            if spins > 4:
                os.sched_yield()  # devices may be more than cores
            if not spins % SPINS:
                since = since or perf_counter()
                self._doing = what
                self.look(what)
                since = self._suspect(since)
        self._moves += 1
        self._asked, self._before = 0.0, None

    def look(self, what: object) -> None:
        """Reads the news."""
        status = MPI.Status()
        while self.world.Iprobe(MPI.ANY_SOURCE, 0, status):
            source = status.Get_source()
            kind, *news = self.world.recv(source=source, tag=0)
            if kind == "ended":
                number, outcome = news
                self.ended.setdefault(number, {})[source] = outcome
            elif kind == "wrote":
                number, item = news
                self.stream(number)[source].append(item)
            elif kind == "ask" and what is not None:
                self._tell(source, ("answer", news[0], self._told(what), self._moves))
            elif kind == "answer" and news[0] == self._question:
                self._answers[source] = (news[1], news[2])
        now = self.ended.get(self.number, {})
        if not self.ending and any(outcome[0] == "failed" for outcome in now.values()):
            raise Stopped

    def stream(self, number: int) -> list[deque[Any]]:
        """The outputs of each device in the call of this number."""
        return self.written.setdefault(number, [deque() for _ in range(self.world.size)])

    def write(self, item: Any) -> None:
        """An output of this device, for all."""
        for other in self.others:
            self._tell(other, ("wrote", self.number, item))
        self.stream(self.number)[self.device].append(item)

    def end(self, outcome: tuple[str, Any]) -> list[tuple[str, Any]]:
        """Tells all how this device has ended a call, and waits for all others: how each has, in order."""
        self.announce(outcome)
        self.wait(self.all_have_ended, "ended")
        return self.outcomes()

    def announce(self, outcome: tuple[str, Any]) -> None:
        """Tells all how this device has ended a call."""
        self.ending = True
        self._failed_at = 0.0
        for other in self.others:
            self._tell(other, ("ended", self.number, outcome))
        self.ended.setdefault(self.number, {})[self.device] = outcome

    def all_have_ended(self) -> bool:
        """Whether all have ended the call, or one has failed and the others have had time enough."""
        self.look("ended")
        now = self.ended[self.number]
        if self._failed_at or any(known[0] == "failed" for known in now.values()):
            self._failed_at = self._failed_at or perf_counter()
            self.given_up = perf_counter() - self._failed_at > GRACE
        return len(now) > len(self.others) or self.given_up

    def outcomes(self) -> list[tuple[str, Any]]:
        """How each device has ended the call; the next can begin."""
        now = self.ended.pop(self.number)
        self.written.pop(self.number, None)
        self.number += 1
        self.ending = False
        return [now.get(device, ("lost", None)) for device in range(self.world.size)]

    def _suspect(self, since: float) -> float:
        """Asks around when it has been long; the time from which to count on."""
        now = perf_counter()
        if self.ending:
            return now
        if not self._asked:
            if now - since < self.patience:
                return since
            self._ask(now)
        elif len(self._answers) == len(self.others):
            if self._before == self._answers:
                raise DeadlockError(self._standstill())
            self._before = self._answers
            self._ask(now)
        elif now - self._asked > ANSWERS:
            self._asked, self._before = 0.0, None
            return now
        return since

    def _ask(self, now: float) -> None:
        self._question += 1
        self._answers = {}
        self._asked = now
        for other in self.others:
            self._tell(other, ("ask", self._question))

    def _told(self, what: object) -> str:
        if what == "ended":
            return f"device {self.device} has returned"
        return f"device {self.device} waits in {told_in_group(what, self.world.size)}{place_here()}"

    def _standstill(self) -> str:
        told = {device: text for device, (text, _) in self._answers.items()}
        told[self.device] = self._told(self._doing)
        lines = "; ".join(told[device] for device in sorted(told))
        return f"nobody can move: {lines}. Every wait needs a partner: check who calls what, and how often"

    def _tell(self, other: int, news: tuple[Any, ...]) -> None:
        self._sending = [request for request in self._sending if not request.Test()]
        self._sending.append(self.world.isend(news, other, 0))
