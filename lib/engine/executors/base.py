"""The executor interface, which runs a player's class on every device of one transport, and the options of a run."""

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from lib.engine.metering.meter import Reading
from lib.engine.transports.base import Port
from lib.engine.words import SAYS
from lib.errors import Sentence
from lib.masked_arrays import refuse_masked
from lib.values.algebra import counted

from .copies import NO_ARGUMENT, LentParameters, copies_out
from .streams import InputStream, OutputStream

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
