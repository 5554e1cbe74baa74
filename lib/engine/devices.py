"""A player's class on its devices: what goes in, what comes out, and the executor of devices in this process.

An executor runs every call of a run on all devices. Each device gets copies of its arguments, and callers get copies of
its results, so that devices in one process share no more memory than those in several; only full parameters are lent,
read-only, for as long as a class loads its part. A stream is read by each device at its own speed.

How devices wait for each other is left to the transports, and what an array costs to `metering`. Rejected: handing a
caller's own arrays to a device, which saves a copy; two devices would then share what no call has sent.
"""

import weakref
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from lib.engine.collectives import Array
from lib.engine.inprocess import InProcessPort, Scheduler
from lib.engine.metering import LentBlock, Reading, patched_numpy
from lib.engine.transport import Port, call_place
from lib.errors import PuzzleError, RuleError, Sentence, Sentences, refuse_masked
from lib.ledger.algebra import counted

# --- Copies into and out of a device ---
#
# Arguments are charged to the device's meter. Parameters are only lent for loading, because a device copies its part.


class NoArgument:
    def __reduce__(self) -> str:
        return "NO_ARGUMENT"


NO_ARGUMENT = NoArgument()
"""The argument of a method that takes no argument."""


class LentParameters:
    """Read-only parameters for one call; any that the device keeps are charged to it."""

    def __init__(self, tree: Any, port: Port) -> None:
        self.blocks: list[weakref.ref[LentBlock]] = []
        self.tree = map_arrays(tree, lambda array: self._lend(array, port), port)

    def _lend(self, array: Array, port: Port) -> Array:
        lent, block = port.library.lend(array, port.meter)
        if block is not None:
            self.blocks.append(weakref.ref(block))
        return lent

    def settle(self) -> None:
        """Charges the arrays that the device still refers to."""
        self.tree = None
        for ref in self.blocks:
            block = ref()
            if block is not None:
                block.charge()


def argument_for(x: Any, lent: bool, port: Port) -> Any:
    """An argument with copies of its arrays, charged to the meter of `port`; or lent parameters."""
    return LentParameters(x, port) if lent else map_arrays(x, lambda array: copy_in(array, port), port)


def copy_in(array: Array, port: Port) -> Array:
    """A copy that belongs to a device."""
    copied = port.library.adopted(array)
    return copied if port.meter is None else port.library.charged(copied, port.meter)


def copies_out(tree: Any, port: Port) -> Any:
    """A result with copies of its arrays, which belong to no device."""
    return map_arrays(tree, port.library.copy_out, port)


def map_arrays(tree: Any, function: Callable[[Array], Any], port: Port) -> Any:
    """Applies `function` to each array in nested dictionaries, lists and tuples (a pytree map)."""
    if isinstance(tree, port.library.array_types):
        return function(tree)
    if isinstance(tree, dict):
        return {key: map_arrays(value, function, port) for key, value in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(map_arrays(value, function, port) for value in tree)
    return tree


# --- The streams of an inference loop: inputs that every device reads, outputs joined in the order of the inputs ---

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


def every_input(stream: Iterable[Any]) -> list[Any]:
    """All inputs of a stream, which has to end."""
    inputs = list(islice(stream, MAX_ON_PROCESSES + 1))
    if len(inputs) > MAX_ON_PROCESSES:
        raise RuleError(SAYS("stream too long", most=MAX_ON_PROCESSES))
    return inputs


# --- The executor interface, which runs a player's class on every device of one transport, and the options of a run ---

MAX_NAMED = 8
"""Pairs of devices that a message names."""


@dataclass(frozen=True)
class LaunchOptions:
    """A class to run on `size` devices, and how; fields are named like the arguments of `launch`."""

    cls: type
    size: int
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    metered: bool = True
    patience: float = 10.0
    byte_time: Mapping[str, int] | None = None
    late_puts: Collection[int] | None = None
    time_limit: float | None = None


class Executor(Protocol):
    """The devices of a run. There is one executor per transport."""

    size: int
    metered: bool

    def call(self, method: str, arguments: Sequence[Any], lent: bool) -> list[Any]:
        """Calls a method on every device with its argument, `lent` or as a copy; returns the results, by device."""
        ...

    def stream(self, inputs: Iterable[Any]) -> Generator[Any, None, None]:
        """Runs the inference loop of every device; yields an output, or a row with one output per device."""
        ...

    def readings(self) -> tuple[Reading, ...]:
        """The figures of each device's meter."""
        ...

    def close(self, failed: bool) -> None:
        """Ends the devices. Unless the run has failed, refuses messages that were never received."""
        ...


def unread_text(unread: Sequence[tuple[int, int, int]]) -> Sentence:
    """The message about unreceived messages, given as (from, to, how many)."""
    pairs = [f"{n} from device {source} to device {to}" for source, to, n in unread[:MAX_NAMED]]
    pairs += [f"and between {counted(len(unread) - MAX_NAMED, 'other pair')}"] if len(unread) > MAX_NAMED else []
    return SAYS("never received", pairs=", ".join(pairs), unread=[*unread])


class Device:
    """The player's object on one port. It holds the result of its last call until the next one has returned, like an
    output that stays on a device while the step continues."""

    def __init__(self, cls: type, port: Port) -> None:
        self.cls = cls
        self.port = port
        self.player: Any = None
        self.held: Any = None

    def make(self, args: Sequence[Any], kwargs: Any) -> None:
        """Creates the player's object; the port is bound before its `__init__` runs."""
        self.player = self.cls.__new__(self.cls, *args, **kwargs)
        self.player._port = self.port
        self.player.__init__(*args, **kwargs)

    def call(self, method: str, box: list[Any]) -> Any:
        """Calls a method with the argument in the box, and returns a copy of its result with plain arrays."""
        lent = box[0] if isinstance(box[0], LentParameters) else None
        if lent is not None:
            box[0], lent.tree = lent.tree, None
        function = getattr(self.player, method)
        self.held = function() if box[0] is NO_ARGUMENT else function(box.pop())
        refuse_masked(self.held, f"device {self.port.device} of {self.port.size}, the result of {method}")
        if lent is not None:
            lent.settle()
        return copies_out(self.held, self.port)

    def loop(self, source: InputStream, asks: Callable[[], object], sink: OutputStream) -> None:
        self.player.inference_loop(source.reader(self.port, asks), sink)


# --- The in-process executor: each call starts one task per device, and ends when all have returned ---


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


SAYS = Sentences(
    {
        "stream read late": "device {device} begins to read the stream after others have read {read} inputs, and only {most} are kept; begin to read before that, or let another device send the inputs",
        "stream too long": "the stream has more than {most:,} inputs, and on processes all are read before the first output is there; end it earlier, or run an endless stream in process",
        "never received": "messages were sent and never received: {pairs}; receive them, or do not send them",
    }
)
"""The refusals of this chapter: a reason, and a sentence over its facts."""
