"""The in-process transport: devices are tasks of one thread and switch only where one waits.

So every run is the same, and a deadlock needs no timeout: no device is ready and some device waits. Tasks are
greenlets, whose switch takes less than a microsecond, or in a browser the tasks of `suspended.py`. Threads would be
preempted anywhere and cost several times as much. asyncio would need `await` in players' classes, which are plain
functions with blocking calls.

Whether calls agree and what they compute is left to `collectives`, and what a device runs to `devices`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import get_ident
from typing import Any

from lib.engine.collectives import Array, CollectiveCall, require_same_call, results_of
from lib.engine.metering import Meter, current, player_frame, player_line
from lib.engine.transport import (
    ENDED,
    NUMPY,
    RETURNED,
    CallableInt,
    GreenletExit,
    PendingReceive,
    Put,
    Unread,
    deadlock_text,
    end_greenlet,
    getcurrent,
    greenlet,
    require_own_thread,
    waiting_text,
)
from lib.errors import DeadlockError, MismatchError, Sentence


class Scheduler:
    """All devices of one process, and a queue of those that can run."""

    def __init__(
        self,
        size: int,
        metered: bool = False,
        late_puts: Collection[int] | None = None,
        byte_time: Mapping[str, int] | None = None,
    ) -> None:
        meters = [Meter(byte_time) if metered else None for _ in range(size)]
        self.ports = [InProcessPort(self, device, size, meter) for device, meter in enumerate(meters)]
        self.ready: deque[InProcessPort] = deque()
        self.meetings: dict[tuple[int, ...], tuple[CollectiveCall, dict[int, Any]]] = {}
        """By group: the call of its first member, and the contribution of each member that has arrived."""
        self.parked: list[tuple[InProcessPort, Callable[[], bool]]] = []
        """Devices that wait for a condition, with the condition."""
        self.hub: Any = None
        """The task that runs `advance`."""
        self.thread: int | None = None
        """The thread that runs `advance`, if any; ENDED after an error that has ended the run."""
        self.failure: tuple[int, BaseException] | None = None
        self.closed = False
        self.ends_with_its_source: Callable[[int], bool] = lambda device: False
        """True for a device of an inference loop that reads no inputs. It ends when the device that it receives from
        has ended."""
        self.line_of_send: Callable[[], int] = lambda: 0
        """The line that sends a message. A graded run looks it up, which takes a tenth of the time of a message."""
        self.late_puts = late_puts
        """Devices whose puts arrive at the barrier; the puts of others arrive immediately. None means all devices, as
        on MPI."""

    def start(self, work: Callable[[InProcessPort], object]) -> None:
        """Makes every device ready to run `work`; `advance` runs it."""
        for port in self.ports:
            port.task = greenlet(port.run)
            port.work = work
            port.waits_in = None
            self.ready.append(port)

    def advance(self, until: Callable[[], bool] = lambda: False) -> bool:
        """Runs the devices until all have ended; returns False if `until` became true before that."""
        self.hub = getcurrent()
        self.thread = get_ident()
        current.run_here()
        try:
            while self.ready or self._resume_parked() or self._end_followers():
                if self.ready:
                    self.ready.popleft().task.switch()
                if self.failure is not None:
                    raise self.failure[1]
                if until():
                    return False
            if any(not port.task.dead for port in self.ports):
                raise DeadlockError(self._deadlock_text(), line=self._culprit_line())
        except BaseException:
            self.close()
            raise
        finally:
            current.meter = None
            self.thread = None
        return True

    def _resume_parked(self) -> bool:
        """Makes devices ready whose condition has become true; False if there are none."""
        able = [port for port, condition in self.parked if condition()]
        self.parked = [entry for entry in self.parked if entry[0] not in able]
        for port in able:
            port.waits_in = None
            self.ready.append(port)
        return bool(able)

    def _end_followers(self) -> bool:
        """Ends the devices that wait for a device that has ended, if `ends_with_its_source`; False if there are
        none."""
        ended = [port for port in self.ports if self._has_lost_its_source(port)]
        for port in ended:
            current.meter = port.meter
            end_greenlet(port.task)
        return bool(ended)

    def _has_lost_its_source(self, port: InProcessPort) -> bool:
        waits_in = port.waits_in
        return (
            isinstance(waits_in, PendingReceive)
            and not port.task.dead
            and self.ports[waits_in].task.dead
            and self.ends_with_its_source(port.device)
        )

    def close(self) -> None:
        """Ends every device that has not ended."""
        self.closed = True
        self.ready.clear()
        self.parked.clear()
        for port in self.ports:
            current.meter = port.meter
            end_greenlet(port.task)
        current.meter = None

    def unread(self) -> list[Unread]:
        pairs = [(source, port) for port in self.ports for source in port.inbox]
        return sorted((source, port.device, len(port.inbox[source])) for source, port in pairs if port.inbox[source])

    def unread_line(self) -> int:
        """The line that sent the first message that was not received; 0 if all were."""
        boxes = (self.ports[to].inbox[source] for source, to, _ in self.unread())
        return next((line for box in boxes for *_, line in box), 0)

    def forget_messages(self) -> None:
        for port in self.ports:
            port.inbox.clear()

    def _deadlock_text(self) -> Sentence:
        return deadlock_text(map(self._state_text, self.ports), self.unread())

    def _culprit_line(self) -> int:
        """The line of a device that waits: of one with unread messages from others, if there is any."""
        waiting = [port for port in self.ports if not port.task.dead]
        receivers = {to for _, to, _ in self.unread()}
        port = next((port for port in waiting if int(port.device) in receivers), waiting[0])
        frame = player_frame(port.task.gr_frame)
        return 0 if frame is None else frame.f_lineno

    def _state_text(self, port: InProcessPort) -> str:
        if port.task.dead:
            return RETURNED
        return waiting_text(port.waits_in, len(self.ports), player_line(port.task.gr_frame))


class InProcessPort:
    """One device's end of the in-process transport."""

    library = NUMPY

    def __init__(self, scheduler: Scheduler, device: int, size: int, meter: Meter | None) -> None:
        self.scheduler = scheduler
        self.device = CallableInt(device)
        self.size = CallableInt(size)
        self.meter = meter
        self.task: Any = None
        self.work: Callable[[InProcessPort], object] | None = None
        self.waits_in: object = None
        """The call in which this device waits, or None if it can run. The device that makes this one ready resets
        it."""
        self.result: Any = None
        self.inbox: dict[int, deque[tuple[Array, int, int]]] = defaultdict(deque)
        """By device: its messages that were not received, each with the clock and the line at which it was sent."""
        self.apply_put: Callable[[Put], None]

    def run(self) -> None:
        assert self.work is not None
        current.meter = self.meter
        try:
            self.work(self)
        except GreenletExit:
            pass
        except BaseException as why:
            if self.scheduler.failure is None or self.scheduler.failure[0] == self.device:
                self.scheduler.failure = (self.device, why)

    def collective(self, call: CollectiveCall, arr: Array) -> Any:
        return self._meet(call, arr, lambda _, arrays: results_of(call, arrays))

    def fence(self, call: CollectiveCall, puts: Sequence[tuple[int, Put]]) -> list[Put]:
        arrived: list[Put] = self._meet(call, puts, _deliver)
        return arrived

    def try_put(self, to: int, put: Put) -> bool:
        late = self.scheduler.late_puts
        if late is None or self.device in late:
            return False
        self.scheduler.ports[to].apply_put(put)
        return True

    def _meet(
        self, call: CollectiveCall, brought: Any, combine: Callable[[CollectiveCall, Sequence[Any]], Sequence[Any]]
    ) -> Any:
        """Waits until the whole group has made the call. The last member to arrive combines all contributions."""
        if self.scheduler.thread != get_ident():
            self._require_running()
        if len(call.group) == 1:
            return combine(call, [brought])[0]
        try:
            there = self._come(call, brought)
        except MismatchError as why:  # which ends the run, even if the class catches it
            self.scheduler.failure, self.scheduler.thread = (self.device, why), ENDED
            raise
        if there is None:
            self._wait(call)
        else:
            self._release(call.group, combine(call, [there[member] for member in call.group]))
        result, self.result = self.result, None
        return result

    def _come(self, call: CollectiveCall, brought: Any) -> dict[int, Any] | None:
        """Joins the meeting of a call's group. Only the last member to arrive gets the arrays of all: if others kept
        them, they would be charged while they wait for their turn."""
        scheduler, group = self.scheduler, call.group
        begun = scheduler.meetings.get(group)
        if begun is None:
            if scheduler.meetings:  # somebody waits in another group
                self._refuse_crossed_groups(call)
            begun = scheduler.meetings[group] = (call, {})
        first, there = begun
        if call is not first and call != first:
            require_same_call((first, call), (next(iter(there)), self.device))
        there[self.device] = brought
        if len(there) < len(group):
            return None
        del scheduler.meetings[group]
        return there

    def _release(self, group: Sequence[int], results: Sequence[Any]) -> None:
        """Gives every member of a complete meeting its result and the latest clock, and makes the member ready."""
        ports, ready = [self.scheduler.ports[member] for member in group], self.scheduler.ready
        latest = None if self.meter is None else max([port.meter.clock for port in ports if port.meter is not None])
        for port, result in zip(ports, results):
            port.result, port.waits_in = result, None
            if port is not self:
                ready.append(port)
            if latest is not None and port.meter is not None:
                port.meter.clock = latest

    def _refuse_crossed_groups(self, call: CollectiveCall) -> None:
        """Refuses to wait for a device that waits for this one in another group, because neither could continue."""
        for member in call.group:
            other = self.scheduler.ports[member].waits_in
            if isinstance(other, CollectiveCall) and self.device in other.group:
                require_same_call((other, call), (member, self.device))

    def _require_running(self) -> None:
        """Refuses a call in another thread, or after the error that has ended the run."""
        scheduler = self.scheduler
        if scheduler.thread != ENDED:
            return require_own_thread(scheduler.thread, self)
        if getcurrent() is self.task:
            scheduler.hub.switch()  # which raises the error
        raise GreenletExit

    def send(self, to: int, arr: Array) -> None:
        scheduler = self.scheduler
        if scheduler.thread != get_ident():
            self._require_running()
        port = scheduler.ports[to]
        port.inbox[self.device].append((arr.copy(), self.meter.clock if self.meter else 0, scheduler.line_of_send()))
        if type(port.waits_in) is PendingReceive and int(port.waits_in) == self.device:
            port.waits_in = None
            scheduler.ready.append(port)

    def receive(self, source: int) -> Array:
        if self.scheduler.thread != get_ident():
            self._require_running()
        box = self.inbox[source]
        if not box:
            self._wait(PendingReceive(source))
        arr, clock, _ = box.popleft()
        meter = self.meter
        if meter is not None and clock > meter.clock:
            meter.clock = clock
        return arr

    def yield_turn(self, resume_next: bool = False) -> None:
        """Lets the caller of `advance` continue if its condition is true. Then the other devices run, unless this
        device is to `resume_next`."""
        if self.scheduler.hub is not None and len(self.scheduler.ports) > 1:
            if resume_next:
                self.scheduler.ready.appendleft(self)
            else:
                self.scheduler.ready.append(self)
            self.scheduler.hub.switch()
            current.meter = self.meter
            if self.scheduler.closed:
                raise GreenletExit

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Lets other devices run until `condition` is true, which is tested when none of them can run."""
        if not condition():
            self.scheduler.parked.append((self, condition))
            self._wait(what)

    def _wait(self, what: object) -> None:
        scheduler = self.scheduler
        if scheduler.closed:
            raise GreenletExit
        self.waits_in = what
        if scheduler.hub is None or self.task is None:
            raise DeadlockError(
                f"device {self.device} would wait in {what} forever, because it is alone; use launch(...)"
            )
        ready = scheduler.ready
        if ready and ready[0].task:
            ready.popleft().task.switch()
        else:  # only the hub starts a task: one started here would count this one's calls as its own recursion
            scheduler.hub.switch()
        current.meter = self.meter
        if scheduler.closed:
            raise GreenletExit


def _deliver(call: CollectiveCall, brought: Sequence[Any]) -> list[list[Put]]:
    return [[put for puts in brought for to, put in puts if to == member] for member in call.group]


def single_port() -> InProcessPort:
    """The port of a ShardedEngine that was not launched, and so is the only device. Its collectives return
    immediately."""
    return Scheduler(1).ports[0]
