"""The judge's end of the wire: carries what devices send each other, counts it, and gives the devices their turns.

For each device there is a greenlet of the in-process transport that speaks for it. So one device runs at a time, in the
same order as in process, and meetings, messages, deadlocks and streams are the same as there. A device's own
report of what it sent is not believed: bytes, calls and clocks are counted here. No device is told a clock, or why the
run ends. Nothing that a player wrote runs here.
"""

import os
import re
import select
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import prod
from typing import Any, NamedTuple

from greenlet import GreenletExit
from numpy import dtype as dtype_of
from numpy import ndarray

from lib.engine.arguments import checked_group, checked_partner, require_sendable
from lib.engine.call import CollectiveCall, collective_call, message_traffic, put_traffic
from lib.engine.collectives import COLLECTIVES, Array
from lib.engine.executors.copies import NO_ARGUMENT
from lib.engine.executors.streams import InputStream, OutputStream
from lib.engine.metering.meter import Meter
from lib.engine.transports.base import Put
from lib.engine.transports.inprocess import InProcessPort
from lib.errors import PuzzleError
from puzzles.failure import Failure, of_refusal
from puzzles.sandbox.worker.stages.stage import FailedError

from .device_channel import DeviceEnd, WireError
from .device_port import repeat


class BufferForm(NamedTuple):
    """What a device has said of a symmetric buffer, as all others have."""

    nbytes: int
    dtype: dtype_of[Any]


def placed(put: Put, buffers: Sequence[BufferForm]) -> Put | None:
    """The put with the strides that matter, if it is of its buffer's dtype and all of its elements are elements of the
    buffer; else None."""
    shape = put.content.shape
    if not 0 <= put.buffer < len(buffers) or len(put.strides) != len(shape):
        return None
    nbytes, dtype = buffers[put.buffer]
    steps = (put.offset, *put.strides)
    if put.content.dtype != dtype or any(type(step) is not int or step % dtype.itemsize for step in steps):
        return None
    if not put.content.size:
        return put._replace(offset=0, strides=(0,) * len(shape))
    reach = [(n - 1) * step for n, step in zip(shape, put.strides)]
    first = put.offset + sum(min(step, 0) for step in reach)
    last = put.offset + sum(max(step, 0) for step in reach)
    if first < 0 or last + dtype.itemsize > nbytes:
        return None
    packed = [prod(shape[axis:]) * dtype.itemsize for axis in range(1, len(shape) + 1)]
    return put._replace(strides=tuple(step if n > 1 else full for n, step, full in zip(shape, put.strides, packed)))


class RemoteDevice:
    """Speaks for one device: gives it commands, and answers its calls as a port in process does."""

    def __init__(self, end: DeviceEnd, port: InProcessPort) -> None:
        self.end = end
        self.port = port
        assert port.meter is not None
        self.meter: Meter = port.meter
        self.own: Mapping[str, Any] = {}
        """The last reading of the device's own meter."""
        self._arrived: list[Put] = []
        """Puts that the device gets with the next message, before it continues."""
        self._buffers: list[BufferForm] = []
        """Its symmetric buffers."""
        self._late: list[tuple[int, Put]] = []
        """Its own puts, which are to arrive at the barrier."""
        self._inputs: Iterator[Any] = iter(())
        self._outputs: OutputStream | None = None
        self._poll = select.poll()
        for fd in (end.channel.fd, end.printed):
            self._poll.register(fd, select.POLLIN)
        port.apply_put = self._arrived.append

    # --- Commands ---

    def command(self, name: str, *given: Any) -> Any:
        """Lets the device run a command, and answers its calls until it returns."""
        self.begin(name, *given)
        return self.answer()

    def begin(self, name: str, *given: Any) -> None:
        self._send(name, self._puts(), *given)

    def make(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.own = self.command("make", list(args), dict(kwargs))

    def call(self, method: str, argument: Any, lent: bool) -> Any:
        answer = self.command("call", method, [] if argument is NO_ARGUMENT else [argument], lent)
        if not isinstance(answer, list) or len(answer) != 2:
            raise self._broken("it returned something else than a result and its meter")
        result, self.own = answer
        return result

    def loop(self, source: InputStream, asks: Callable[[], object], sink: OutputStream) -> None:
        self._inputs, self._outputs = source.reader(self.port, asks), sink
        self.own = self.command("loop")

    def place(self) -> str:
        """Where it waits, asked of the device: ', line 12 of mine.py'."""
        self._send("where", [], None)
        match self._receive():
            case ["at", steps, str(line)]:
                self._repeat(steps)
                return line
        raise self._broken("it does not say where it waits")

    def reading(self) -> dict[str, Any]:
        """The device's own reading, with the bytes, calls and clock that the judge has counted."""
        counted = self.meter.reading()
        if not isinstance(self.own, dict):
            raise self._broken("its meter cannot be read")
        return {
            **self.own,
            "sent": counted.sent,
            "unpacked": counted.unpacked,
            "calls": dict(counted.calls),
            "clock": counted.clock,
        }

    # --- The device's calls ---

    def answer(self) -> Any:
        """Answers the device's calls until its command returns; returns the result."""
        while True:
            kind, steps, *given = self._receive()
            self._repeat(steps)
            if kind == "done" and len(given) == 1:
                return given[0]
            try:
                self._answer(kind, given)
            except PuzzleError as why:
                raise FailedError(of_refusal(why, self._line())) from None
            except (TypeError, ValueError, OverflowError):  # no engine makes such a call
                raise self._broken(UNKNOWN) from None
            except GreenletExit:
                if not self.port.scheduler.closed:  # the device that it waits for has ended its loop
                    self._leave()
                raise

    def _answer(self, kind: Any, given: list[Any]) -> None:
        match kind, given:
            case "send", [to, array] if isinstance(array, ndarray):
                self._send_message(to, array)
            case "put", [to, int(buffer), int(offset), list(strides), content] if isinstance(content, ndarray):
                self._put(to, Put(buffer, offset, tuple(strides), content))
            case "receive", [source]:
                array = self.port.receive(checked_partner(source, self.port.device, self.port.size))
                self.meter.communicate("receive")
                self._reply("ok", array)
            case "collective", [str(name), str(op), int(axis), list(shape), str(dtype), list(group), array]:
                self._reply("ok", self._collective(name, op, axis, shape, dtype, group, array))
            case "fence", [list(group)]:
                self._fence(group)
                self._reply("ok", None)
            case "input", []:
                self._reply("ok", [item for item in (next(self._inputs, STREAM_END),) if item is not STREAM_END])
            case "output", [item] if self._outputs is not None:
                self._outputs.write(item)
                self._reply("ok", None)
            case "failed", [[str(reason), str(sentence), int(line), *_]]:
                raise FailedError(Failure(reason, sentence, line))
            case _:
                raise self._broken(UNKNOWN)

    def _send_message(self, to: Any, array: Array) -> None:
        to = checked_partner(to, self.port.device, self.port.size)
        traffic = message_traffic(to, array.shape, array.dtype, self.port.device, self.port.size)
        self.meter.communicate("send", traffic)
        self.port.send(to, array)

    def _put(self, to: Any, put: Put) -> None:
        to = checked_partner(to, self.port.device, self.port.size)
        require_sendable(put.content.shape, put.content.dtype)
        checked = placed(put, self._buffers)
        if checked is None:
            raise self._broken("it puts an array outside of the buffer")
        self.meter.communicate("send_async", put_traffic(put.content.shape, put.content.dtype, checked.strides))
        if not self.port.try_put(to, checked):
            self._late.append((to, checked))

    def _collective(
        self, name: str, op: str, axis: int, shape: list[Any], dtype: str, group: list[Any], array: Any
    ) -> Any:
        port = self.port
        if name == "symmetric":
            everyone = tuple(range(port.size))
            require_sendable(tuple(shape), kind := dtype_of(dtype))
            self._buffers.append(BufferForm(prod(shape) * kind.itemsize, kind))  # first, as the device's own
            return port.collective(CollectiveCall(name, "", 0, tuple(shape), kind.str, everyone), array)
        if name not in COLLECTIVES or not isinstance(array, ndarray):
            raise self._broken(UNKNOWN)
        call = collective_call(name, op, axis, array.shape, array.dtype, tuple(group), port.device, port.size)
        self.meter.communicate(name, call.traffic)
        return port.collective(call, array)

    def _fence(self, group: list[Any]) -> None:
        members = checked_group(group, self.port.device, self.port.size)
        self.meter.communicate("barrier")
        puts = [(to, put) for to, put in self._late if to in members]
        self._late = [(to, put) for to, put in self._late if to not in members]
        self._arrived += self.port.fence(CollectiveCall("barrier", "", 0, (), "", members), puts)

    def _leave(self) -> None:
        """Ends the device's loop, which waits for a message that never comes."""
        self._reply("leave", None)
        while (message := self._receive())[0] not in ("done", "failed"):
            if message[0] not in ("send", "put"):
                self._reply("leave", None)
        if message[0] == "done":
            self.own = message[2]

    # --- Messages ---

    def _puts(self) -> list[Any]:
        puts = [[put.buffer, put.offset, list(put.strides), put.content] for put in self._arrived if put.content.size]
        self._arrived.clear()
        return puts

    def _reply(self, answer: str, result: Any) -> None:
        self._send(answer, self._puts(), result)

    def _repeat(self, steps: Any) -> None:
        try:
            repeat(steps, self.meter)
        except ValueError as why:
            raise self._broken(str(why)) from None

    def _line(self) -> int:
        """The line of the player's file that the device is in; 0 if it is in none."""
        with suppress(FailedError):  # it made the call without the engine, and waits for no answer
            if found := re.search(r"line (\d+)", self.place()):
                return int(found[1])
        return 0

    def _send(self, *parts: Any) -> None:
        try:
            self.end.channel.send(*parts)
        except OSError:
            raise self._broken("it has closed the wire") from None

    def _receive(self) -> list[Any]:
        """Waits for the device's next message, and passes on what it prints."""
        while self.end.channel.fd not in [fd for fd, _ in self._poll.poll()]:
            self._pass_on()
        self._pass_on()
        try:
            message = self.end.channel.receive()
        except (OSError, WireError) as why:
            raise self._broken(str(why)) from None
        if len(message) < 2:
            raise self._broken("what it wrote to the wire is not a message")
        return message

    def _pass_on(self) -> None:
        with suppress(BlockingIOError):
            while data := os.read(self.end.printed, 1 << 16):
                while data:
                    data = data[os.write(1, data) :]
            with suppress(KeyError):  # it has closed its end
                self._poll.unregister(self.end.printed)

    def _broken(self, why: str) -> FailedError:
        device, size = self.port.device, self.port.size
        reason, advice = "rule", "leave the engine as it is"
        if "closed" in why:
            reason, advice = "crash", "let the methods return instead of exiting"
        sentence = f"device {device} of {size} ended its part of the run: {why}; {advice}"
        return FailedError(Failure(reason, sentence))


STREAM_END = object()

UNKNOWN = "it made a call that does not exist"
