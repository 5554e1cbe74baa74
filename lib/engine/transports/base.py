"""What carries arrays between devices: one small interface, and two transports behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from lib.engine.call import Call, Number
from lib.engine.collectives import Array
from lib.engine.metering.meter import Meter


class Put(NamedTuple):
    """A one-sided write under way: into which symmetric buffer (by number), where in it (byte offset, shape and
    strides in bytes), and what."""

    buffer: int
    offset: int
    strides: tuple[int, ...]
    content: Array


class Port(Protocol):
    """One device's end of a transport. Arrays given to it may be reused as soon as a call returns; arrays it
    returns belong to the device."""

    device: Number
    size: Number
    meter: Meter | None
    land: Callable[[Put], None]
    """Writes what is put into this device's symmetric buffers."""

    def collective(self, call: Call, arr: Array) -> Any:
        """Meets the other devices of `call.group`; returns this device's result, as in `reference`."""
        ...

    def fence(self, call: Call, puts: Sequence[tuple[int, Put]]) -> list[Put]:
        """Meets all devices and delivers what was put (with its target): what arrives here, by device."""
        ...

    def landed(self, to: int, put: Put) -> bool:
        """Whether a put is at its target already; if not, `fence` has to bring it."""
        ...

    def send(self, to: int, arr: Array) -> None:
        """Sends a copy of `arr`; never waits."""
        ...

    def receive(self, source: int) -> Array:
        """Waits for the next array from `source`: messages of a pair keep their order."""
        ...

    def step_aside(self) -> None:
        """Lets the other devices go on, where they share one processor."""
        ...
