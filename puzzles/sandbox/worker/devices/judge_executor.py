"""Runs a class on devices that are processes, in turns that the judge gives."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from lib.engine import ShardedEngine
from lib.engine.executors.inprocess import InProcessExecutor
from lib.engine.transports.base import RETURNED, waiting_text
from lib.engine.transports.inprocess import InProcessPort, Scheduler

from .device_channel import DeviceEnd
from .judged_transport import RemoteDevice


class JudgeScheduler(Scheduler):
    """That of the in-process transport; devices that wait are asked for their lines."""

    devices: Sequence[RemoteDevice] = ()

    def _state_text(self, port: InProcessPort) -> str:
        if port.task.dead:
            return RETURNED
        return waiting_text(port.waits_in, len(self.ports), self.devices[port.device].place())


class JudgeExecutor(InProcessExecutor):
    """Runs a class on devices that are processes; an executor for `lib.engine.launcher.Run`."""

    def __init__(
        self,
        ends: Sequence[DeviceEnd],
        kwargs: Mapping[str, Any],
        late_puts: Collection[int] | None = None,
        byte_time: Mapping[str, int] | None = None,
    ) -> None:
        self.cls = ShardedEngine
        self.size = len(ends)
        self.metered = True
        self.scheduler = JudgeScheduler(self.size, True, late_puts, byte_time)
        self.remote = [RemoteDevice(end, port) for end, port in zip(ends, self.scheduler.ports)]
        self.devices = self.remote  # type: ignore[assignment]  # what is asked of them is the same
        self.scheduler.devices = self.remote
        self.kwargs, self.byte_time = kwargs, byte_time or {}

    def load(self) -> bool:
        """Lets every device load the file, and the first one print; False if it has no such definition."""
        return all(self._on_all("load", lambda i: (i == 0, dict(self.byte_time))))

    def recordings(self) -> list[Any]:
        return self._on_all("recording")

    def made(self) -> JudgeExecutor:
        """This executor, with the player's object created on every device."""
        self._run("__init__", lambda port: self.remote[port.device].make((), self.kwargs))
        return self

    def call(self, method: str, arguments: Sequence[Any], lent: bool) -> list[Any]:
        results: list[Any] = [None] * self.size

        def work(port: InProcessPort) -> None:
            results[port.device] = self.remote[port.device].call(method, arguments[port.device], lent)

        self._run(method, work)
        return results

    def _run(self, method: str, work: Any) -> None:
        self.scheduler.start(work)
        self._advance(method)

    def readings(self) -> Any:
        """As plain data, because the grader checks them anyway."""
        return [device.reading() for device in self.remote]

    def end(self) -> str:
        """Lets every device check its engine; the first remark on a forgotten coroutine."""
        return next(filter(None, map(str, self._on_all("end"))), "")

    def _on_all(self, command: str, given: Callable[[int], tuple[Any, ...]] = lambda i: ()) -> list[Any]:
        """The devices' answers to a command in which none needs another: they run at once."""
        for i, device in enumerate(self.remote):
            device.begin(command, *given(i))
        return [device.answer() for device in self.remote]
