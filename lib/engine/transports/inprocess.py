"""Devices as greenlets of one thread: they switch only when one has to wait, so every run is the same.

A switch costs less than a microsecond, and when nobody is ready and somebody waits, that is a deadlock: it is seen
at once and needs no clock. Greenlets, because players write blocking calls in plain functions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from lib.engine.call import Call, Number, agree, perform, place_in, told_in_group
from lib.engine.collectives import Array
from lib.engine.metering.meter import Meter, current
from lib.errors import DeadlockError

from .base import Put


class World:
    """All devices of one process, and who of them can run."""

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
        self.meetings: dict[tuple[int, ...], tuple[Call, dict[int, Any]]] = {}
        """By group: the call that its first member made, and what each that is there has brought."""
        self.hub: Any = None
        self.failure: tuple[int, BaseException] | None = None
        self.over = False
        self.late_puts = late_puts
        """Whose puts land at the barrier, while all others land at once. None: everybody's, as on MPI."""

    def start(self, work: Callable[[InProcessPort], object]) -> None:
        """Gives every device something to do; `advance` does it."""
        for port in self.ports:
            port.task = greenlet(port.carry_out)
            port.work = work
            port.waits = None
            self.ready.append(port)

    def advance(self, until: Callable[[], bool] = lambda: False) -> bool:
        """Runs the devices until all have ended; False if `until` became true before.

        Raises:
            DeadlockError: nobody can move, and somebody waits.
            BaseException: what a device has raised; all others have been ended.
        """
        self.hub = getcurrent()
        try:
            while self.ready:
                self.ready.popleft().task.switch()
                if self.failure is not None:
                    raise self.failure[1]
                if until():
                    return False
            if any(not port.task.dead for port in self.ports):
                raise DeadlockError(self._standstill())
        except BaseException:
            self.close()
            raise
        finally:
            current.meter = None
        return True

    def close(self) -> None:
        """Ends every device that has not ended."""
        self.over = True
        self.ready.clear()
        for port in self.ports:
            current.meter = port.meter
            end_greenlet(port.task)
        current.meter = None

    def unread(self) -> list[tuple[int, int, int]]:
        """Messages that nobody has received: (from, to, how many)."""
        pairs = [(source, port) for port in self.ports for source in port.inbox]
        return sorted((source, port.device, len(port.inbox[source])) for source, port in pairs if port.inbox[source])

    def forget_messages(self) -> None:
        for port in self.ports:
            port.inbox.clear()

    def _standstill(self) -> str:
        told = []
        for port in self.ports:
            if port.task.dead:
                told.append(f"device {port.device} has returned")
            else:
                waits = told_in_group(port.waits, len(self.ports))
                told.append(f"device {port.device} waits in {waits}{place_in(port.task.gr_frame)}")
        return f"nobody can move: {'; '.join(told)}. Every wait needs a partner: check who calls what, and how often"


class InProcessPort:
    """One device's end."""

    def __init__(self, world: World, device: int, size: int, meter: Meter | None) -> None:
        self.world = world
        self.device = Number(device)
        self.size = Number(size)
        self.meter = meter
        self.task: Any = None
        self.work: Callable[[InProcessPort], object] | None = None
        self.waits: object = None
        """The call it waits in; None if it can run: whoever makes it ready says so."""
        self.result: Any = None
        self.inbox: dict[int, deque[tuple[Array, int]]] = {}
        self.land: Callable[[Put], None]

    def carry_out(self) -> None:
        assert self.work is not None
        current.meter = self.meter
        try:
            self.work(self)
        except GreenletExit:
            pass
        except BaseException as why:
            if self.world.failure is None:
                self.world.failure = (self.device, why)

    def collective(self, call: Call, arr: Array) -> Any:
        return self._meet(call, arr, perform)

    def fence(self, call: Call, puts: Sequence[tuple[int, Put]]) -> list[Put]:
        # What is put is seen after the barrier on every transport; before it only under a test schedule.
        arrived: list[Put] = self._meet(call, puts, _deliver)
        return arrived

    def landed(self, to: int, put: Put) -> bool:
        late = self.world.late_puts
        if late is None or self.device in late:
            return False
        self.world.ports[to].land(put)
        return True

    def _meet(self, call: Call, brought: Any, perform: Callable[[Call, Sequence[Any]], Sequence[Any]]) -> Any:
        world, group = self.world, call.group
        if len(group) == 1:
            return perform(call, [brought])[0]
        begun = world.meetings.get(group)
        if begun is None:
            self._unless_elsewhere(call)
            begun = world.meetings[group] = (call, {})
        first, there = begun
        if call != first:
            agree((first, call), (next(iter(there)), self.device))
        there[self.device] = brought
        if len(there) < len(group):
            self._wait(call)
        else:
            del world.meetings[group]
            ports = [world.ports[member] for member in group]
            for port, result in zip(ports, perform(call, [there[member] for member in group])):
                port.result, port.waits = result, None
                if port is not self:
                    world.ready.append(port)
            meters = [port.meter for port in ports if port.meter is not None]
            if meters:
                latest = max([meter.clock for meter in meters])
                for meter in meters:
                    meter.clock = latest
        result, self.result = self.result, None
        return result

    def _unless_elsewhere(self, call: Call) -> None:
        """Refuses to wait for a device that waits for this one, in another group: neither would ever move."""
        for member in call.group:
            other = self.world.ports[member].waits
            if isinstance(other, Call) and self.device in other.group:
                agree((other, call), (member, self.device))

    def send(self, to: int, arr: Array) -> None:
        port = self.world.ports[to]
        box = port.inbox.setdefault(self.device, deque())
        box.append((arr.copy(), self.meter.clock if self.meter else 0))
        if isinstance(port.waits, _Receive) and int(port.waits) == int(self.device):
            port.waits = None
            self.world.ready.append(port)

    def receive(self, source: int) -> Array:
        box = self.inbox.setdefault(source, deque())
        if not box:
            self._wait(_Receive(source))
        arr, clock = box.popleft()
        if self.meter is not None:
            self.meter.clock = max(self.meter.clock, clock)
        return arr

    def step_aside(self) -> None:
        if self.world.hub is not None and len(self.world.ports) > 1:
            self.world.ready.append(self)
            self.world.hub.switch()
            current.meter = self.meter
            self._unless_over()

    def _wait(self, what: object) -> None:
        """Lets others run until this device is made ready."""
        world = self.world
        self._unless_over()
        self.waits = what
        if world.hub is None or self.task is None:
            raise DeadlockError(f"device {self.device} waits in {what} for ever; it is alone: run it with launch(...)")
        if world.ready:
            world.ready.popleft().task.switch()
        else:
            world.hub.switch()
        current.meter = self.meter
        self._unless_over()

    def _unless_over(self) -> None:
        if self.world.over:
            raise GreenletExit


class _Receive(int):
    """A wait for a message from the device of this number."""

    def __str__(self) -> str:
        return f"receive({int(self)})"


def _deliver(call: Call, brought: Sequence[Any]) -> list[list[Put]]:
    return [[put for puts in brought for to, put in puts if to == member] for member in call.group]


def alone() -> InProcessPort:
    """The only device: what a ShardedEngine is on when nobody launched it. Its collectives return at once."""
    return World(1).ports[0]


def end_greenlet(task: Any) -> None:
    """Ends a greenlet that has begun and not ended. A player's code may catch even this, but only so often."""
    for _ in range(100):
        if task is None or task.dead or not task:
            return
        task.throw(GreenletExit)
