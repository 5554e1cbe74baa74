"""The in-process executor: each call starts one task per device, and ends when all have returned."""

from collections.abc import Generator, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from lib.engine.metering.meter import Reading
from lib.engine.metering.numpy_patch import patched_numpy
from lib.engine.transports.inprocess import InProcessPort, Scheduler
from lib.errors import PuzzleError, RuleError

from .base import Device, LaunchOptions, unread_text
from .copies import argument_for
from .streams import MAX_UNREAD, MAX_UNTAKEN, InputStream, OutputStream, OutputStreams


class InProcessExecutor:
    """All devices of a run, and the scheduler that switches between them."""

    def __init__(self, asked: LaunchOptions) -> None:
        self.cls, self.size, self.metered = asked.cls, asked.size, asked.metered
        self.scheduler = Scheduler(asked.size, asked.metered, asked.late_puts, asked.byte_time)
        self.devices = [Device(asked.cls, port) for port in self.scheduler.ports]
        self._run("__init__", lambda port: self.devices[port.device].make(asked.args, asked.kwargs))

    def _counting(self) -> AbstractContextManager[None]:
        """A context in which numpy's functions count in the class's module."""
        return patched_numpy(self.cls, self.metered)

    def _run(self, method: str, work: Any) -> None:
        with self._counting():
            self.scheduler.start(work)
            self._advance(method)

    def _advance(self, method: str, until: Any = lambda: False) -> bool:
        try:
            return self.scheduler.advance(until)
        except Exception as why:
            failure = self.scheduler.failure
            if failure is not None and not isinstance(why, PuzzleError):
                why.add_note(f"raised on device {failure[0]} of {self.size}, in {method}")
            raise

    def call(self, method: str, arguments: Sequence[Any], lent: bool) -> list[Any]:
        results: list[Any] = [None] * self.size
        # Each argument is in a box that its device empties, so that no reference here keeps an input alive.
        given = [[argument_for(x, lent, port)] for x, port in zip(arguments, self.scheduler.ports)]

        def work(port: InProcessPort) -> None:
            results[port.device] = self.devices[port.device].call(method, given[port.device])

        self._run(method, work)
        return results

    def stream(self, inputs: Iterable[Any]) -> Generator[Any, None, None]:
        source, sink = InputStream(inputs, self.size), OutputStreams([()] * self.size)
        self.scheduler.start(lambda port: self._loop(port, source, sink))
        self.scheduler.ends_with_its_source = lambda device: not sink.devices[device].asked
        done = False
        try:
            while not done:
                with self._counting():
                    done = self._advance("inference_loop", sink.is_ready)
                yield from sink.take(all_of_them=done)
        except GeneratorExit:
            self.scheduler.close()
            self.scheduler.forget_messages()
            raise
        finally:
            self.scheduler.ends_with_its_source = lambda device: False

    def _loop(self, port: InProcessPort, source: InputStream, sink: OutputStreams) -> None:
        outputs = sink.devices[port.device]

        def asks() -> None:
            outputs.asked += 1
            number = outputs.asked - 1
            port.wait_until(
                lambda: not source.is_far_ahead(number),
                f"the input stream, {MAX_UNREAD} inputs before another device that reads it",
            )

        def keep(item: Any) -> None:
            outputs.pending.append((outputs.asked, item))
            if sink.is_ready():  # a device that reads has a turn for each input; another turn would put it behind
                port.yield_turn(resume_next=outputs.asked > 0)
            port.wait_until(
                lambda: len(outputs.pending) < MAX_UNTAKEN,
                f"the output stream, {MAX_UNTAKEN} outputs before another device that has not written",
            )

        self.devices[port.device].loop(source, asks, OutputStream(port, keep))
        outputs.ended = True

    def readings(self) -> tuple[Reading, ...]:
        return tuple(meter.reading() for port in self.scheduler.ports if (meter := port.meter) is not None)

    def close(self, failed: bool) -> None:
        self.scheduler.close()
        unread, line = [] if failed else self.scheduler.unread(), self.scheduler.unread_line()
        self.scheduler.forget_messages()
        if unread:
            raise RuleError(unread_text(unread), line=line)
