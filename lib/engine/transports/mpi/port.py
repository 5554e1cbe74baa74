"""The MPI transport: every call is first agreed on in a small message, so that no process blocks in a mismatch.

In a meeting each member writes a row of about a kilobyte that holds the call and, if it fits, the array: a small
collective needs nothing else. Large arrays follow once all calls agree; from then on MPI cannot get stuck. Parts are
reduced here and not by MPI, in device order, so that results equal those of `collectives` bit for bit. A device that
waits polls and reads its control messages (see `control`); it never sleeps and never blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import get_ident
from typing import Any

from numpy import array, ascontiguousarray, int32  # by name: a metered run counts what players make with np.array

from lib.engine.call import CollectiveCall, require_same_call, results_of
from lib.engine.collectives import Array
from lib.engine.metering.meter import Meter
from lib.engine.transports.base import ENDED, ENDING, CallableInt, Put, require_own_thread
from lib.engine.transports.reused_memory import ReusedMemory
from lib.errors import PuzzleError

from .control import ControlChannel, PeerFailedError
from .handshake import Handshake
from .large_arrays import LARGE_COLLECTIVES
from .meeting import Meeting, MessageMeeting, SharedMeeting
from .messages import Messages
from .run_tags import RunTags, group_communicator
from .shared_memory import NOWHERE, HostMemory

MAX_PREPARED = 1024
"""Number of calls that are kept prepared for the next time that they are made."""


class MpiPort:
    """One process's end of the MPI transport."""

    def __init__(self, control: ControlChannel, meter: Meter | None, tags: RunTags) -> None:
        self.control = control
        self.data = tags.data
        self.meeting_tag = tags.first + 1
        self.memory = ReusedMemory()
        self.host = tags.host
        self.messages = Messages(self.data, tags.first + 2, self.memory, self.host)
        self.puts = Messages(self.data, tags.first + 4, self.memory, HostMemory(self.data.rank, {}))
        """Each put is two messages: where it goes, and its content, which nobody copies."""
        self.device = CallableInt(self.data.rank)
        self.size = CallableInt(self.data.size)
        self.meter = meter
        self.thread = get_ident()
        """The thread that runs the device, or ENDED."""
        self.failure: PuzzleError | None = None
        """The error that has ended the run on this device, which the class may have caught."""
        self.apply_put: Callable[[Put], None]
        self.stream: Any = None
        """What runs this device's inference loop, while a stream is open."""
        self._meetings: dict[tuple[int, ...], Meeting] = {}
        """By group."""
        self._prepared: dict[CollectiveCall, tuple[Meeting, list[Handshake]]] = {}
        """Of repeated calls: the group's meeting, and the handshake in each of its tables."""
        control.meetings = lambda: {group: meeting.number for group, meeting in self._meetings.items()}

    def collective(self, call: CollectiveCall, arr: Array) -> Any:
        if self.thread != get_ident():
            self._require_running()
        prepared = self._prepared.get(call)
        if prepared is None:
            if len(call.group) == 1:
                return results_of(call, [arr])[0]
            prepared = self._prepare(call, arr if call.name in LARGE_COLLECTIVES else None)
        meeting, handshakes = prepared
        handshake = handshakes[meeting.turn]
        if handshake.result is not None and handshake.mine is not None:
            handshake.mine[...] = arr
            self._meet(meeting, handshake)
            return handshake.result()
        self._meet(meeting, handshake)
        if call.name not in LARGE_COLLECTIVES:
            return None
        contiguous = ascontiguousarray(arr).reshape(arr.shape)
        exchange, comm = LARGE_COLLECTIVES[call.name], group_communicator(call.group)
        return exchange(comm, call, contiguous, handshake.index, self.memory)

    def _prepare(self, call: CollectiveCall, content: Array | None) -> tuple[Meeting, list[Handshake]]:
        if len(self._prepared) >= MAX_PREPARED:
            self._prepared.clear()
        meeting = self._meetings.get(call.group)
        if meeting is None:
            meeting = MessageMeeting(self.data, self.meeting_tag, call.group, self.host)
            self._meetings[call.group] = meeting
        handshakes = [Handshake(call, meeting.index, rows, content) for rows in meeting.tables]
        prepared = self._prepared[call] = meeting, handshakes
        return prepared

    def _meet(self, meeting: Meeting, handshake: Handshake) -> None:
        """Synchronizes the group; afterwards the arrays of all members are where the handshake has them."""
        call, meter = handshake.call, self.meter
        try:
            meeting.meet(handshake, 0 if meter is None else meter.clock, self.control)
            latest = handshake.latest_clock()
            if latest is None:
                require_same_call(handshake.calls(), call.group)
        except ENDING as why:
            self._end(why)
            raise
        if latest is not None and meter is not None and latest > meter.clock:
            meter.clock = latest
        if type(meeting) is MessageMeeting and meeting.place() != NOWHERE:
            self._share(meeting, call)

    def _share(self, met: MessageMeeting, call: CollectiveCall) -> None:
        """Moves the meetings of a group, after the first one, into shared memory."""
        group, like = call.group, met.tables[0]
        self._meetings[group] = SharedMeeting(self.host, group, met.index, like, met.take_place())
        met.free(ended_well=True)
        self._prepared = {known: prepared for known, prepared in self._prepared.items() if known.group != group}

    def fence(self, call: CollectiveCall, puts: Sequence[tuple[int, Put]]) -> list[Put]:
        self._require_running()
        if len(call.group) == 1:
            return [put for _, put in puts]
        counts = array([sum(to == target for to, _ in puts) for target in range(self.size)], int32)
        for to, put in puts:
            self.puts.send_owned(to, array([put.buffer, put.offset, *put.strides]))
            self.puts.send_owned(to, put.content)
        meeting, handshakes = self._prepared.get(call) or self._prepare(call, counts)
        handshake = handshakes[meeting.turn]
        assert handshake.parts is not None, "a row has room for a count per device"
        handshake.parts[handshake.index] = counts
        self._meet(meeting, handshake)
        counted = handshake.parts[:, self.device].tolist()
        arrived = [
            self._receive_put(source)
            for source, count in zip(call.group, counted)
            if source != self.device
            for _ in range(count)
        ]
        self.puts.finish()
        return arrived

    def _receive_put(self, source: int) -> Put:
        _, place = self.puts.receive(source)
        _, content = self.puts.receive(source)
        buffer, offset, *strides = place.tolist()
        return Put(buffer, offset, tuple(strides), content)

    def try_put(self, to: int, put: Put) -> bool:
        return False

    def send(self, to: int, arr: Array) -> None:
        if self.thread != get_ident():
            self._require_running()
        clock = self.meter.clock if self.meter is not None else 0
        self.messages.send(to, arr, clock, until_received=self.stream is not None)

    def receive(self, source: int) -> Array:
        if self.thread != get_ident():
            self._require_running()
        messages, meter = self.messages, self.meter
        try:
            if self.stream is not None:
                self.stream.wait_to_receive(source, partial(messages.has_come, source), f"receive({source})")
            clock, arr = messages.receive(source, self.control.wait)
        except ENDING as why:
            self._end(why)
            raise
        if meter is not None and clock > meter.clock:
            meter.clock = clock
        return arr

    def _end(self, why: PuzzleError) -> None:
        """Keeps the error that ends the run; this device communicates no more, even if the class catches it."""
        self.failure, self.thread = why, ENDED

    def _require_running(self) -> None:
        """Refuses a call in another thread, or after the error that has ended the run."""
        if self.thread == ENDED:
            raise PeerFailedError
        require_own_thread(self.thread, self)

    def yield_turn(self) -> None:
        self._require_running()
        self.control.receive_news(None)
        if self.stream is not None:
            self.stream.yield_turn()

    def close(self) -> list[tuple[int, int, int]]:
        """Ends the connection; returns the messages that were not received: (from, to, how many)."""
        received = [self.messages.received_from(source) for source in range(self.size)]
        counts = self.control.world.allgather((self.messages.sent, received))
        unread = []
        for source, (sent, _) in enumerate(counts):
            for to, (_, received) in enumerate(counts):
                left = sent[to] - received[source]
                unread += [(source, to, left)] if left else []
                for _ in range(left if to == self.device else 0):
                    self.messages.receive(source)
        self.messages.finish()
        self.control.world.Barrier()  # nobody writes to shared memory any more
        self.free(ended_well=True)
        return unread

    def free(self, ended_well: bool = False) -> None:
        """Frees what MPI holds for this run, and the memory kept for its results."""
        for meeting in self._meetings.values():
            meeting.free(ended_well)
        self._meetings.clear()
        self.messages.free(ended_well)
        self.puts.free(ended_well)
        self.memory.close()
