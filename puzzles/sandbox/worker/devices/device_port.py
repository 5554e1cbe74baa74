"""A device's end of the judge's wire: each call of the engine is a message, and the reply is its result."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from threading import get_ident
from typing import Any

from greenlet import GreenletExit

from lib.engine.call import CollectiveCall
from lib.engine.collectives import Array
from lib.engine.executors.copies import argument_for
from lib.engine.libraries.numpy_library import NUMPY
from lib.engine.metering.meter import Life, Meter, current
from lib.engine.player_code import player_line
from lib.engine.transports.base import CallableInt, Put, require_own_thread
from puzzles.sandbox.worker.repeat.recorder import DeviceRecorder

from .device_channel import DeviceChannel, WireError

COMPUTE, WAIT = "compute", "wait"


class DeviceMeter(Meter):
    """Its clock waits for nobody. The judge repeats the steps on a clock of its own."""

    __slots__ = ("recorder", "steps")

    def __init__(self) -> None:
        super().__init__()
        self.recorder = DeviceRecorder()
        self.steps: list[tuple[str, int]] = []
        """Since the last message: flops computed, bytes of a transfer, or the number of a transfer to wait for."""

    def taken(self) -> list[tuple[str, int]]:
        steps, self.steps = self.steps, []
        return steps

    def compute(self, flops: int) -> None:
        super().compute(flops)
        before = self.steps.pop()[1] if self.steps and self.steps[-1][0] == COMPUTE else 0
        self.steps.append((COMPUTE, before + flops))

    def hold(self, nbytes: int) -> Life:
        life = super().hold(nbytes)
        self.recorder.hold(life)
        return life

    def release(self, life: Life) -> None:
        super().release(life)
        self.recorder.release(life)

    def within_kernel(self) -> Meter:
        """Records, too, and counts as the second run does, which knows no kernels."""
        meter = DeviceMeter()
        meter.scales, meter.recorder = self.scales, self.recorder
        return meter

    def transfer(self, memory: str, nbytes: int) -> int:
        self.steps.append((memory, nbytes))
        return super().transfer(memory, nbytes)

    def wait_for(self, transfer: int) -> None:
        self.steps.append((WAIT, transfer))
        super().wait_for(transfer)


def repeat(steps: object, meter: Meter) -> None:
    for step in steps if isinstance(steps, list) else [steps]:
        match step:
            case ("compute", int(flops)) if flops >= 0:
                meter.compute(flops)
            case ("host" | "disk" as memory, int(nbytes)) if nbytes >= 0:
                meter.transfer(memory, nbytes)
            case ("wait", int(number)) if 0 <= number < len(meter.ends):
                meter.wait_for(number)
            case _:
                raise ValueError("its steps do not come from a meter")
        if meter.clock >= MAX_CLOCK:
            raise ValueError("its clock is not a number")


MAX_CLOCK = 1 << 62


class DevicePort:
    """Implements `lib.engine.transports.base.Port`."""

    library = NUMPY
    disk_store = dict
    """What holds the arrays of the device's disk; no file can be written."""

    def __init__(self, device: int, size: int, meter: DeviceMeter, channel: DeviceChannel) -> None:
        self.device = CallableInt(device)
        self.size = CallableInt(size)
        self.meter: Meter | None = meter
        self.channel = channel
        self.apply_put: Callable[[Put], None]
        self._steps = meter
        self._thread = get_ident()

    def collective(self, call: CollectiveCall, arr: Array) -> Any:
        shape, group = [int(n) for n in call.shape], [int(member) for member in call.group]
        content = None if call.name == "symmetric" else arr
        return self._ask("collective", call.name, call.op, int(call.axis), shape, call.dtype, group, content)

    def fence(self, call: CollectiveCall, puts: Sequence[tuple[int, Put]]) -> list[Put]:
        assert not puts, "the judge holds them"
        self._ask("fence", [int(member) for member in call.group])
        return []

    def try_put(self, to: int, put: Put) -> bool:
        """The judge delivers it, now or at the barrier."""
        self._say("put", int(to), put.buffer, put.offset, list(put.strides), put.content)
        return True

    def send(self, to: int, arr: Array) -> None:
        self._say("send", int(to), arr)

    def receive(self, source: int) -> Array:
        array: Array = self._ask("receive", int(source))
        return array

    def yield_turn(self) -> None:
        """The judge gives the turns."""

    # --- The streams of an inference loop ---

    def inputs(self) -> Iterator[Any]:
        while item := self._ask("input"):
            yield self._given(item.pop())

    def _given(self, item: Any) -> Any:
        recorder = self._steps.recorder
        recorder.reads()
        given = argument_for(item, False, self)
        recorder.given(given, False)
        return given

    def output(self, item: Any) -> None:
        self._ask("output", item)

    # --- Messages ---

    def apply(self, puts: Sequence[Any]) -> None:
        """Writes what other devices have put into this one's buffers."""
        for buffer, offset, strides, content in puts:
            self.apply_put(Put(buffer, offset, tuple(strides), content))

    def _say(self, kind: str, *given: Any) -> None:
        require_own_thread(self._thread, self)
        meter, current.meter = current.meter, None
        try:
            self.channel.send(kind, self._steps.taken(), *given)
        except (OSError, WireError):
            os._exit(0)  # the run is over
        finally:
            current.meter = meter

    def _ask(self, kind: str, *given: Any) -> Any:
        self._say(kind, *given)
        meter, current.meter = current.meter, None
        try:
            answer, puts, result = self._reply()
            self.apply(puts)
        finally:
            current.meter = meter
        if answer == "leave":
            raise GreenletExit
        return result

    def _reply(self) -> list[Any]:
        """The reply; before that, the judge may ask where this device waits."""
        try:
            while (reply := self.channel.receive())[0] == "where":
                self.channel.send("at", self._steps.taken(), player_line(sys._getframe(2)))
            return reply
        except (OSError, WireError):
            os._exit(0)
