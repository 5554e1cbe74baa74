"""A run in one process: each call starts a greenlet for each device, and ends when all have returned."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from typing import Any

from lib.engine.metering.meter import Reading
from lib.engine.metering.numpy_patch import watching
from lib.engine.transports.inprocess import InProcessPort, World
from lib.errors import PuzzleError, RuleError

from .device import Device, argument_for, unread_text
from .streams import Inputs, Outputs


class LocalRun:
    """The devices, and the world they live in."""

    def __init__(
        self,
        cls: type,
        size: int,
        args: Sequence[Any],
        kwargs: Any,
        metered: bool,
        late_puts: Collection[int] | None = None,
        byte_time: Mapping[str, int] | None = None,
    ) -> None:
        self.cls = cls
        self.size = size
        self.metered = metered
        self.world = World(size, metered, late_puts, byte_time)
        self.devices = [Device(cls, port) for port in self.world.ports]
        self._run("__init__", lambda port: self.devices[port.device].make(args, kwargs))

    def _run(self, method: str, work: Any) -> None:
        with watching(self.cls, self.metered):
            self.world.start(work)
            self._advance(method)

    def _advance(self, method: str, until: Any = lambda: False) -> bool:
        try:
            return self.world.advance(until)
        except Exception as why:
            failure = self.world.failure
            if failure is not None and not isinstance(why, PuzzleError):
                why.add_note(f"raised on device {failure[0]} of {self.size}, in {method}")
            raise

    def call(self, method: str, arguments: Sequence[Any], lent: bool) -> list[Any]:
        results: list[Any] = [None] * self.size
        # Each in a box, out of which it is taken: an input lives no longer than its device wants it to.
        given = [[argument_for(x, lent, port.meter)] for x, port in zip(arguments, self.world.ports)]

        def work(port: InProcessPort) -> None:
            results[port.device] = self.devices[port.device].call(method, given[port.device])

        self._run(method, work)
        return results

    def stream(self, inputs: Iterable[Any]) -> Generator[Any, None, None]:
        source, sink = Inputs(inputs, self.size), Outputs([deque() for _ in range(self.size)])
        with watching(self.cls, self.metered):
            self.world.start(lambda port: self.devices[port.device].loop(source, sink.writer(port.device)))
        done = False
        try:
            while not done:
                with watching(self.cls, self.metered):
                    done = self._advance("inference_loop", sink.is_ready)
                yield from sink.take(all_of_them=done)
        except GeneratorExit:
            self.world.close()
            self.world.forget_messages()
            raise

    def readings(self) -> tuple[Reading, ...]:
        return tuple(meter.reading() for port in self.world.ports if (meter := port.meter) is not None)

    def close(self, failed: bool) -> None:
        self.world.close()
        unread = [] if failed else self.world.unread()
        self.world.forget_messages()
        if unread:
            raise RuleError(unread_text(unread))
