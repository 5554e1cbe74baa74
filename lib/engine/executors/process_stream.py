"""An inference loop on processes: this device's loop runs in a greenlet while an output is needed.

It reports its outputs, and the number of inputs that it has read, to all other devices.
"""

import os
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Any

from lib.engine.transports.processes.control import ControlChannel, PeerFailedError
from lib.engine.transports.processes.port import ProcessPort
from lib.engine.transports.tasks import GreenletExit, getcurrent, greenlet

from .base import Device
from .streams import UNKNOWN, InputStream, OutputStream, OutputStreams

MAX_AHEAD = 4
"""How many outputs or sent messages one device may be ahead, divided by the number of devices: enough to fill a
pipeline."""

AHEAD_SECONDS = 1.0
"""How long a device waits for its messages to be received before it reads on: the receiver may need more first."""


class ProcessStream:
    """The loop of this process's device, and the outputs of all."""

    def __init__(self, device: Device, control: ControlChannel, port: ProcessPort, inputs: Iterable[Any]) -> None:
        self.control, self.port = control, port
        self.sink = OutputStreams(port.size, UNKNOWN)
        self.mine = self.sink.devices[port.device]
        self.reports = control.reports_of(control.call_number)
        self.max_ahead = MAX_AHEAD * port.size
        self.inputs = 0
        self.hub = getcurrent()
        source, sink = InputStream(inputs, 1), OutputStream(port, self._keep)
        self.loop: Any = greenlet(lambda: device.loop(source, self._asks, sink))
        port.stream = self

    def is_ready(self) -> bool:
        while self.reports:
            source, (kind, inputs, item) = self.reports.popleft()
            device = self.sink.devices[source]
            device.asked = inputs
            if kind == "wrote":
                device.pending.append((inputs, item))
            elif kind == "ended":
                device.ended = True
        return self.sink.is_ready()

    def advance(self) -> None:
        """Runs the loop until an output is complete or the loop has ended; waits while it is far ahead."""

        def has_arrived() -> bool:
            self.control.poll_control("inference_loop")
            return self.is_ready()

        while not self.loop.dead and not self.is_ready():
            if len(self.mine.pending) < self.max_ahead:
                self.loop.switch()
            else:
                self.control.wait(has_arrived, "inference_loop")

    def end(self) -> None:
        """Reports that this device writes no more."""
        self.control.report(("ended", self.inputs, None))

    def yield_turn(self) -> None:
        self.hub.switch()

    def _asks(self) -> None:
        """Called before each input. Other devices need the report only until they wait for this device's outputs
        anyway."""
        self.inputs += 1
        if not self.mine.in_rows:
            self.control.report(("asked", self.inputs, None))
        self._wait_for_receivers()

    def _wait_for_receivers(self) -> None:
        """Waits for a limited time while too many of this device's messages are unreceived. Outputs can be taken
        meanwhile: a caller that takes the last output that it wants then ends the loop, as the receivers may have
        done."""
        until = perf_counter() + AHEAD_SECONDS
        while self.port.messages.unreceived() > self.max_ahead and perf_counter() < until:
            self.control.poll_control(None)
            if self.is_ready():
                self.hub.switch()
            os.sched_yield()

    def _keep(self, item: Any) -> None:
        if self.port.failure is not None:
            raise PeerFailedError
        self.control.report(("wrote", self.inputs, item))
        if self.is_ready():
            self.hub.switch()

    def wait_to_receive(self, source: int, arrived: Callable[[], Any], what: str) -> None:
        """Waits in the loop for a message; outputs can be taken meanwhile."""
        if self.mine.asked == UNKNOWN:
            self.control.report(("asked", self.inputs, None))
        self._wait_for_receivers()

        def has_ended() -> bool:
            if self.inputs:
                return False
            state, report = self.control.outcome_of(source)
            return state == "returned" and report[0][self.port.device] == self.port.messages.received[source]

        while not arrived():
            self.control.wait(lambda: arrived() or self.is_ready() or has_ended(), what)
            if self.is_ready():
                self.hub.switch()
            elif not arrived() and has_ended():
                raise GreenletExit
