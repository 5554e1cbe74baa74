"""One device with its own process: all devices agree on every call in a small message.

So no process blocks in a mismatch. In a meeting each member sends the others its call and, if it is small, its array; a
small collective needs nothing else. Large arrays follow once all calls agree; from then on no process can get stuck.
MPI only moves parts, which are reduced here in device order, so that results equal `collectives` bit for bit. A waiting
device reads its control messages (see `control`); it never sleeps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pickle import dumps
from threading import get_ident
from typing import Any

from numpy import ndarray  # by name: a metered run counts what players make

from lib.engine.call import CollectiveCall, require_same_call, results_of
from lib.engine.collectives import COLLECTIVES, Array
from lib.engine.metering.meter import Meter
from lib.engine.transports.base import ENDED, ENDING, CallableInt, Put, require_own_thread
from lib.errors import PuzzleError

from .carrier import Carrier
from .control import ControlChannel, PeerFailedError, SourceEndedError
from .messages import MessageChannel, Sending


class Rendezvous:
    """All meetings of one device, in groups of `comm`; they use one tag."""

    def __init__(self, comm: Any, tag: int, control: ControlChannel) -> None:
        self.comm, self.tag, self.control = comm, tag, control
        self._sending = Sending()

    def meet(self, call: CollectiveCall, clock: int, content: Any) -> tuple[list[Any], int]:
        """Synchronizes the group of a call. Returns the contents of all members, in the group's order, and the latest
        clock."""
        device, asked = self.comm.rank, tuple(call)
        row = dumps((asked, clock, content))
        latest, contents = clock, {device: content}
        missing = [member for member in call.group if member != device]
        for member in missing:
            self._sending.add(self.comm.Isend(row, member, self.tag))

        def all_are_here() -> bool:
            nonlocal latest
            for member in tuple(missing):
                come = self.comm.improbe(member, self.tag)
                if come is not None:
                    called, theirs, contents[member] = come.recv()
                    if called != asked:
                        calls = {device: call, member: CollectiveCall(*called)}
                        require_same_call([calls[i] for i in sorted(calls)], sorted(calls))
                    latest = max(latest, theirs)
                    missing.remove(member)
            return not missing

        self.control.wait(all_are_here, call)
        return [contents[member] for member in call.group], latest

    def free(self) -> None:
        """Abandons rows of a failed run that have not been sent."""
        self._sending.abandon()


class ProcessPort:
    """One process's end of a transport."""

    def __init__(self, control: ControlChannel, meter: Meter | None, carrier: Carrier) -> None:
        self.control = control
        self.carrier = carrier
        self.library = carrier.library
        self.rendezvous = Rendezvous(carrier.data, carrier.first + 1, control)
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
        """Synchronizes the group; returns the contents of all members, in the group's order."""
        meter = self.meter
        try:
            contents, latest = self.rendezvous.meet(call, 0 if meter is None else meter.clock, content)
        except ENDING as why:
            self._end(why)
            raise
        if meter is not None:
            meter.clock = latest
        return contents

    def fence(self, call: CollectiveCall, puts: Sequence[tuple[int, Put]]) -> list[Put]:
        self._require_running()
        if len(call.group) == 1:
            return [put for _, put in puts]
        for to, put in puts:
            self.puts.send(to, put.content, (put.buffer, put.offset, put.strides))
        counts = self._meet(call, dict(Counter(to for to, _ in puts)))
        arrived = [
            self._receive_put(source)
            for source, count in zip(call.group, counts)
            for _ in range(count.get(self.device, 0))
        ]
        self.puts.finish()
        return arrived

    def _receive_put(self, source: int) -> Put:
        (buffer, offset, strides), content = self.puts.receive(source)
        return Put(buffer, offset, strides, content)

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
        self.rendezvous.free()
        self.messages.free()
        self.puts.free()
