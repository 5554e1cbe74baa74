"""The transport between processes: agreement on every call, messages, and deadlocks without a central process.

Each process is one device. Before an array is carried, all members of a group have agreed on the call in small
messages, so that no process blocks in a mismatch. A carrier (`mpi`, `torch`) moves bytes, and knows nothing of calls;
so errors and deadlocks are the same on both. A process that waits reads control messages and never sleeps.

How a class is run on a process is left to `process_devices`. Rejected: a blocking call of the library for each call of
a class, which can neither refuse a mismatch nor notice a deadlock or a failed device. Rejected: shared memory below
MPI. It was several times faster for small messages, which no puzzle notices.
"""

from __future__ import annotations

import os
import pickle
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pickle import dumps
from threading import get_ident
from time import perf_counter
from typing import Any, Protocol

from numpy import ndarray  # by name: a metered run counts what players make

from lib.engine.collectives import COLLECTIVES, Array, CollectiveCall, dtype_code, require_same_call, results_of
from lib.engine.metering import Meter, current_player_line
from lib.engine.transport import (
    ENDED,
    ENDING,
    RETURNED,
    ArrayLibrary,
    CallableInt,
    Put,
    deadlock_text,
    require_own_thread,
    waiting_text,
)
from lib.errors import DeadlockError, PuzzleError, RuleError, Sentence

# --- The interface of a carrier, which moves bytes and arrays between processes: `MpiCarrier` or `TorchCarrier` ---

TAGS_OF_A_RUN = 6
"""A run's tags: its first one, and those after it."""


class Carrier(Protocol):
    """One process's connection to the others, for one run. `control` and `data` have the methods of an mpi4py
    communicator that are used here; this run's messages have the tags from `first` on."""

    control: Any
    data: Any
    first: int
    library: ArrayLibrary
    """The library of the arrays that it moves."""
    max_small: int
    """Bytes of the largest array that is sent within a header or a row; -1 if none is."""
    polls_per_check: int
    """Polls between two checks of the control messages."""
    lost: Collection[int]
    """Devices whose processes have ended."""

    def idle(self) -> None:
        """Called between two polls: lets others run, or waits until something may have arrived."""
        ...

    def collective(self, call: CollectiveCall, arr: Array, index: int) -> Array:
        """The result of the member at `index`, for a collective on which all members have agreed."""
        ...

    def group(self, members: tuple[int, ...]) -> Any:
        """The communicator of some devices; all of them make a new one together."""
        ...

    def send_body(self, arr: Array, to: int, tag: int, header: Any) -> Any:
        """Starts to send a large array, whose header has been sent; returns a request."""
        ...

    def receive_body(self, shape: tuple[int, ...], dtype: str, source: int, tag: int) -> tuple[Array, Any]:
        """Starts to receive a large array; returns it with a request."""
        ...

    def abort(self) -> None:
        """Ends all processes."""
        ...


# --- The control channel between processes: completion, failure propagation, deadlock detection ---
#
# A waiting device polls, and regularly reads its control messages. If one device has failed, all stop waiting. After
# some seconds without progress, a device asks all others for their state (a two-round probe, as in distributed
# termination detection). If all answer in two consecutive rounds that they wait, and none has made progress in between,
# that is a deadlock. A blocking call could do none of this.

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
        self._sending = Sending()

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
        self._sending.add(self.world.isend((self.device, *message), other, self.tag))


def _lost(device: int, size: int) -> RuleError:
    return RuleError(f"device {device} of {size} has ended its process in the middle of a run, without an error")


# --- Messages from one device to another; a sender does not wait for the receiver ---
#
# A message is a pickled header, which contains the elements of a small array. A large array follows the header.

Wait = Callable[[Callable[[], Any], str], None]
"""Waits until a test is true, in a call that a message would name; may raise an error."""


def poll(test: Callable[[], Any], _: str = "") -> None:
    """Polls until `test` is true, for data that is already in transit."""
    while not test():
        os.sched_yield()


class Sending:
    """Requests to send that have not completed. A request refers to the memory that it sends."""

    def __init__(self) -> None:
        self._requests: list[Any] = []

    def add(self, request: Any) -> None:
        """Adds a request. Small requests have usually completed at once, and are not kept."""
        self.count()
        if not request.Test():
            self._requests.append(request)

    def count(self) -> int:
        self._requests = [request for request in self._requests if not request.Test()]
        return len(self._requests)

    def abandon(self) -> None:
        """Keeps the memory of requests that may never complete, because their run has failed."""
        self.count()
        _abandoned.extend(self._requests)


class MessageChannel:
    """All messages of one device, to and from the others; they use `tag` and the next one."""

    def __init__(self, carrier: Carrier, tag: int) -> None:
        self.carrier, self.comm, self.tag = carrier, carrier.data, tag
        self.sent = [0] * self.comm.size
        """Messages sent to each device."""
        self.received = [0] * self.comm.size
        """Messages received from each device."""
        self._headers, self._bodies = Sending(), Sending()
        self._next: dict[int, tuple[Any, Array, Any]] = {}
        """By source, the next message if its header has arrived: the note, the array, and for a large array the request
        to receive it."""

    def send(self, to: int, arr: Array, note: Any) -> None:
        """Sends a note with an array in C order that nobody changes afterwards."""
        content = arr.tobytes() if arr.nbytes <= self.carrier.max_small else None
        row = dumps((note, tuple(arr.shape), dtype_code(arr.dtype), content))
        start = self.comm.Issend if content is None else self.comm.Isend
        header = start(row, to, self.tag)
        self._headers.add(header)
        if content is None:
            self._bodies.add(self.carrier.send_body(arr, to, self.tag + 1, header))
        self.sent[to] += 1

    def has_arrived(self, source: int) -> bool:
        """True if the next message from `source` has arrived. Begins to receive an array whose header has arrived."""
        if source not in self._next:
            header = self.comm.improbe(source, self.tag)
            if header is None:
                return False
            self._next[source] = self._begun(source, *header.recv())
        body = self._next[source][2]
        return body is None or body.Test()

    def _begun(
        self, source: int, note: Any, shape: tuple[int, ...], dtype: str, content: bytes | None
    ) -> tuple[Any, Array, Any]:
        if content is not None:
            return note, ndarray(shape, dtype, content).copy(), None
        return note, *self.carrier.receive_body(shape, dtype, source, self.tag + 1)

    def receive(self, source: int, wait: Wait = poll) -> tuple[Any, Array]:
        """The note and the array of the next message from `source`, for which `wait` waits. Without `wait`, the message
        must be in transit."""
        wait(partial(self.has_arrived, source), f"receive({source})")
        self.received[source] += 1
        note, array, _ = self._next.pop(source)
        return note, array

    def finish(self) -> None:
        """Waits until everything has been sent; every message must have been received."""
        poll(lambda: not self._headers.count() and not self._bodies.count())

    def free(self) -> None:
        """Abandons what a failed run has sent or begun to receive; after `finish`, nothing is left."""
        self._headers.abandon()
        self._bodies.abandon()
        _abandoned.extend(body for _, _, body in self._next.values() if body is not None)


_abandoned: list[Any] = []
"""Requests that are never completed. MPI may use their memory as long as the process lives."""


# --- One device with its own process: all devices agree on every call in a small message ---
#
# In a meeting each member sends the others its call and, if it is small, its array;
# a small collective needs nothing else. Large arrays follow once all calls agree; from then on no process can get
# stuck. MPI only moves parts, which are reduced here in device order, so that results equal `collectives` bit for bit.


class ProcessPort:
    """One process's end of a transport. All its meetings use one tag."""

    def __init__(self, control: ControlChannel, meter: Meter | None, carrier: Carrier) -> None:
        self.control = control
        self.carrier = carrier
        self.library = carrier.library
        self._rows = Sending()
        """What this device has sent to the meetings of its groups."""
        self.messages = MessageChannel(carrier, carrier.first + 2)
        self.puts = MessageChannel(carrier, carrier.first + 4)
        self.device = CallableInt(carrier.data.rank)
        self.size = CallableInt(carrier.data.size)
        self.meter = meter
        self.thread = get_ident()
        """The thread that runs the device, or ENDED."""
        self.failure: PuzzleError | None = None
        """The error that has ended the run on this device; the class may have caught it."""
        self.is_agreed = False
        """All calls of the run were checked beforehand, so that devices need not agree on each."""
        self.apply_put: Callable[[Put], None]
        self.ends_with_its_source: Callable[[], bool] = lambda: False
        """True if this device's call ends when it waits for a message from a device whose call has ended."""

    def collective(self, call: CollectiveCall, arr: Array) -> Any:
        if self.thread != get_ident():
            self._require_running()
        if len(call.group) == 1 and self.carrier.max_small >= 0:
            return results_of(call, [arr])[0]
        if call.name not in COLLECTIVES:
            self._meet(call, None)
            return None
        index = call.group.index(self.device)
        if arr.nbytes <= self.carrier.max_small:
            arrays = [ndarray(call.shape, call.dtype, content) for content in self._meet(call, arr.tobytes())]
            return results_of(call, arrays, only=(index,))[0]
        if not self.is_agreed:
            self._meet(call, None)
        return self.carrier.collective(call, arr, index)

    def rely_on(self, groups: Sequence[tuple[int, ...]]) -> None:
        """Stops agreeing on each call, because the program was checked beforehand. `groups` are the groups that it
        uses."""
        self.is_agreed = True
        for group in groups:
            if self.device in group:
                self.carrier.group(group)

    def _meet(self, call: CollectiveCall, content: Any) -> list[Any]:
        """Synchronizes the group of a call, and the clocks of its members. Returns the contents of all members, in the
        group's order."""
        device, meter, comm, tag = int(self.device), self.meter, self.carrier.data, self.carrier.first + 1
        latest, asked, contents = 0 if meter is None else meter.clock, tuple(call), {device: content}
        row = dumps((asked, latest, content))
        missing = [member for member in call.group if member != device]
        for member in missing:
            self._rows.add(comm.Isend(row, member, tag))

        def all_are_here() -> bool:
            nonlocal latest
            for member in tuple(missing):
                come = comm.improbe(member, tag)
                if come is not None:
                    called, theirs, contents[member] = come.recv()
                    if called != asked:
                        calls = {device: call, member: CollectiveCall(*called)}
                        require_same_call([calls[i] for i in sorted(calls)], sorted(calls))
                    latest = max(latest, theirs)
                    missing.remove(member)
            return not missing

        try:
            self.control.wait(all_are_here, call)
        except ENDING as why:
            self._end(why)
            raise
        if meter is not None:
            meter.clock = latest
        return [contents[member] for member in call.group]

    def fence(self, call: CollectiveCall, puts: Sequence[tuple[int, Put]]) -> list[Put]:
        self._require_running()
        if len(call.group) == 1:
            return [put for _, put in puts]
        for to, put in puts:
            self.puts.send(to, put.content, put[:3])
        counts = self._meet(call, dict(Counter(to for to, _ in puts)))
        arrived = [
            Put._make((*place, content))
            for source, count in zip(call.group, counts)
            for _ in range(count.get(self.device, 0))
            for place, content in [self.puts.receive(source)]
        ]
        self.puts.finish()
        return arrived

    def try_put(self, to: int, put: Put) -> bool:
        return False

    def send(self, to: int, arr: Array) -> None:
        if self.thread != get_ident():
            self._require_running()
        clock = self.meter.clock if self.meter is not None else 0
        self.messages.send(to, self.library.copy(arr), clock)

    def receive(self, source: int) -> Array:
        if self.thread != get_ident():
            self._require_running()
        messages, meter = self.messages, self.meter
        try:
            if self.ends_with_its_source():
                self._wait_unless_ended(source)
            clock, arr = messages.receive(source, self.control.wait)
        except ENDING as why:
            self._end(why)
            raise
        if meter is not None and clock > meter.clock:
            meter.clock = clock
        return arr

    def _wait_unless_ended(self, source: int) -> None:
        """Waits until the next message from a device has arrived, or that device has ended its call and sent no more.

        Raises:
            SourceEndedError: that device has sent no more.
        """
        messages = self.messages

        def has_ended() -> bool:
            state, report = self.control.outcome_of(source)
            return state == "returned" and report[2][self.device] == messages.received[source]

        self.control.wait(lambda: messages.has_arrived(source) or has_ended(), f"receive({source})")
        if not messages.has_arrived(source):
            raise SourceEndedError

    def _end(self, why: PuzzleError) -> None:
        """Keeps the error that ends the run. This device communicates no more, even if the class catches the error."""
        self.failure, self.thread = why, ENDED

    def _require_running(self) -> None:
        """Refuses a call in another thread, or after the error that has ended the run."""
        if self.thread == ENDED:
            raise PeerFailedError
        require_own_thread(self.thread, self)

    def yield_turn(self) -> None:
        self._require_running()
        self.control.poll_control(None)

    def close(self) -> list[tuple[int, int, int]]:
        """Ends the connection; returns the messages that were not received: (from, to, how many)."""
        counts = self.control.world.allgather((self.messages.sent, self.messages.received))
        unread = []
        for source, (sent, _) in enumerate(counts):
            for to, (_, received) in enumerate(counts):
                left = sent[to] - received[source]
                unread += [(source, to, left)] if left else []
                for _ in range(left if to == self.device else 0):
                    self.messages.receive(source)
        self.messages.finish()
        self.free()
        return unread

    def free(self) -> None:
        """Abandons what MPI has not carried yet; nothing if the run has ended well."""
        self._rows.abandon()
        self.messages.free()
        self.puts.free()
