"""Runs a class with all devices in this process, and records what each device does with its arrays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from lib.engine.executors.base import Device
from lib.engine.executors.copies import NO_ARGUMENT, LentParameters
from lib.engine.executors.inprocess import InProcessExecutor
from lib.engine.executors.streams import InputStream, OutputStream
from lib.engine.metering.numpy_patch import patched_numpy
from lib.engine.player_code import running_line
from lib.engine.transports.inprocess import InProcessPort, Scheduler

from . import hooks
from .recorder import DeviceRecorder
from .recording_meter import RecordingMeter

hooks.install()

END = object()
"""After the last input of a stream."""


class RecordingDevice(Device):
    """Tells its recorder what it is given and what it returns."""

    def __init__(self, cls: type, port: InProcessPort, recorder: DeviceRecorder) -> None:
        super().__init__(cls, port)
        self.recorder = recorder

    def call(self, method: str, box: list[Any]) -> Any:
        is_lent = isinstance(box[0], LentParameters)
        if box[0] is not NO_ARGUMENT:
            self.recorder.given(box[0].tree if is_lent else box[0], is_lent)
        result = super().call(method, box)
        self.recorder.settle()
        self.recorder.returned(self.held)
        return result

    def loop(self, source: InputStream, asks: Callable[[], object], sink: OutputStream) -> None:
        self.player.inference_loop(self._inputs(source.reader(self.port, asks)), sink)

    def _inputs(self, reader: Iterator[Any]) -> Iterator[Any]:
        while True:
            self.recorder.reads()
            box = [next(reader, END)]
            if box[0] is END:
                return
            self.recorder.given(box[0], False)
            yield box.pop()  # nothing here keeps it alive


class RecordingExecutor(InProcessExecutor):
    """Devices that record. Each may have a class of its own, as each of several processes would."""

    def __init__(
        self,
        size: int,
        late_puts: Collection[int] | None = None,
        byte_time: Mapping[str, int] | None = None,
        after_call: Callable[[Any, int, str], None] = lambda player, device, method: None,
    ) -> None:
        """`after_call` is given each device's object, its number, and the method that was called."""
        self.size, self.metered, self.after_call = size, True, after_call
        self.scheduler = Scheduler(size, True, late_puts, byte_time)
        self.scheduler.line_of_send = running_line
        self.recorders = [DeviceRecorder() for _ in range(size)]
        for port, recorder in zip(self.scheduler.ports, self.recorders):
            port.meter = RecordingMeter(recorder, byte_time)

    def made(self, classes: Sequence[type], kwargs: Mapping[str, Any]) -> RecordingExecutor:
        """This executor, with the player's object created on every device."""
        self.classes = classes
        self.devices = [RecordingDevice(*part) for part in zip(classes, self.scheduler.ports, self.recorders)]
        self._begin()
        self._run("__init__", lambda port: self.devices[port.device].make((), kwargs))
        return self

    def call(self, method: str, arguments: Sequence[Any], lent: bool) -> list[Any]:
        self._begin()
        results = super().call(method, arguments, lent)
        for device in self.devices:
            self.after_call(device.player, device.port.device, method)
        return results

    def stream(self, inputs: Iterable[Any]) -> Generator[Any, None, None]:
        self._begin()
        return super().stream(inputs)

    def recordings(self) -> list[Any]:
        """The steps of all commands of each device; or the reason why there are none, as a text."""
        return [recorder.broken or recorder.segments for recorder in self.recorders]

    def _begin(self) -> None:
        for recorder in self.recorders:
            recorder.begin()

    @contextmanager
    def _counting(self) -> Iterator[None]:
        with ExitStack() as stack:
            for cls in dict.fromkeys(self.classes):
                stack.enter_context(patched_numpy(cls, True))
            yield
