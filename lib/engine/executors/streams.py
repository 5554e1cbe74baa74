"""The streams of an inference loop: inputs that every device reads, outputs joined in the order of the inputs."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from lib.engine.transports.base import Port, call_place
from lib.errors import RuleError
from lib.masked_arrays import refuse_masked
from lib.values.algebra import counted

from ..words import SAYS
from .copies import argument_for, copies_out

MAX_UNREAD = 1024
"""Inputs that are kept for devices that have not begun to read, or read more slowly than others."""

MAX_UNTAKEN = 1024
"""Outputs of a device that are kept in process while other devices' outputs in the same rows are missing."""

MAX_ON_PROCESSES = 65536
"""Inputs of a stream on processes, which all have to be read before the first output can be taken."""


class InputStream:
    """A stream of inputs, read once for `size` devices. Each device gets all inputs; if an input is a list or tuple,
    each device gets its own item."""

    def __init__(self, stream: Iterable[Any], size: int) -> None:
        self.stream = iter(stream)
        self.size = size
        self.kept: dict[int, list[Any]] = {}
        """By number of an input that some device has not read yet: the input, and how many devices have read it."""
        self.begun = 0
        """Devices that have begun to read."""
        self.pulled = 0
        self.ended = False

    def reader(self, port: Port, asks: Callable[[], object]) -> Iterator[Any]:
        """The inputs of one device, copied. Calls `asks` before each."""
        self.begun += 1
        number = 0
        while True:
            asks()
            port.yield_turn()  # so that no device gets ahead of the others
            if number == self.pulled and not self.ended:
                self._pull()
            if number >= self.pulled:
                return
            if number not in self.kept:
                raise RuleError(SAYS("stream read late", device=port.device, read=self.pulled, most=MAX_UNREAD))
            entry = self.kept[number]
            item, entry[1] = entry[0], entry[1] + 1
            self._forget(number)
            number += 1
            refuse_masked(item, f"input {number - 1} of the stream")
            argument = self._item_of(port, item, number) if isinstance(item, list | tuple) else item
            yield argument_for(argument, False, port)
            del argument

    def _item_of(self, port: Port, items: Sequence[Any], number: int) -> Any:
        if len(items) != port.size:
            raise RuleError(
                f"input {number - 1} of the stream has {counted(len(items), 'item')} for "
                f"{counted(port.size, 'device')}; give a list with one per device, or one array for all"
            )
        return items[port.device]

    def is_far_ahead(self, number: int) -> bool:
        """True if the input of this number has not been read from the stream, and too many inputs wait for slower
        devices."""
        return number >= self.pulled and len(self.kept) > MAX_UNREAD

    def _pull(self) -> None:
        try:
            self.kept[self.pulled] = [next(self.stream), 0]
        except StopIteration:
            self.ended = True
        else:
            self.pulled += 1
            self._forget(self.pulled - MAX_UNREAD)

    def _forget(self, number: int) -> None:
        """Drops an input that nobody needs: all devices have read it, or it is old and all that have begun to read have
        read it."""
        _, readers = self.kept.get(number, (None, 0))
        if readers == self.size or (number <= self.pulled - MAX_UNREAD and readers >= self.begun):
            self.kept.pop(number, None)


Written = Sequence[tuple[int, Any]]
"""The outputs that one device has written, each with the number of inputs that the device had asked for by then."""


class DeviceOutputs:
    """The outputs that one device has written and nobody has taken, each with the number of inputs that the device had
    asked for by then. `asked` is that number now: 0 if the device reads no inputs."""

    def __init__(self, written: Written = ()) -> None:
        self.pending = deque(written)
        self.asked = 0
        self.in_rows = False
        """The device has written an output of a row, so every later row waits for it."""
        self.ended = False

    def may_write_for(self, inputs: int) -> bool:
        """True if the device could still write an output that belongs to the first `inputs` inputs."""
        return not self.ended and self.asked != 0 and (self.in_rows or self.asked <= inputs)


class OutputStreams:
    """The outputs of all devices.

    The first outputs that devices write for the same input form a row, and so do the n-th outputs after them. A row is
    complete when no other device can write for it: all others have written, read on without writing, or ended. An
    output of a device that reads no inputs forms a row alone.
    """

    def __init__(self, written: Sequence[Written]) -> None:
        self.devices = [DeviceOutputs(outputs) for outputs in written]

    def is_ready(self) -> bool:
        return bool(self._next_row())

    def take(self, all_of_them: bool = False) -> Iterator[Any]:
        """Removes the complete rows, or everything. Yields an output if one device wrote it, else a list with one item
        per device. None is not an output."""
        for device in self.devices if all_of_them else ():
            device.ended = True
        while writers := self._next_row():
            for device in writers:
                device.in_rows = True
            row = [d.pending.popleft()[1] if d in writers else None for d in self.devices]
            there = [item for item in row if item is not None]
            if there:
                yield there[0] if len(there) == 1 else row

    def _next_row(self) -> list[DeviceOutputs]:
        """The devices whose next outputs form the next row; none if the row is not complete."""
        written = [d for d in self.devices if d.pending]
        if not written:
            return []
        inputs = min(d.pending[0][0] for d in written)
        if not inputs:
            return [next(d for d in written if not d.pending[0][0])]
        if any(not d.pending and d.may_write_for(inputs) for d in self.devices):
            return []
        return [d for d in written if d.in_rows or d.pending[0][0] == inputs]


class OutputStream:
    """The output stream of one device. None is not an output, but it counts as this device's n-th."""

    def __init__(self, port: Port, keep: Callable[[Any], object]) -> None:
        self.port = port
        self.keep = keep

    def write(self, item: Any) -> None:
        refuse_masked(item, call_place(self.port, "write"))
        self.keep(copies_out(item, self.port))


def rows_of(written: Sequence[Written]) -> Iterator[Any]:
    """The rows of loops that have ended."""
    return OutputStreams(written).take(all_of_them=True)


def every_input(stream: Iterable[Any]) -> list[Any]:
    """All inputs of a stream, which has to end."""
    inputs = list(islice(stream, MAX_ON_PROCESSES + 1))
    if len(inputs) > MAX_ON_PROCESSES:
        raise RuleError(SAYS("stream too long", most=MAX_ON_PROCESSES))
    return inputs
