"""The transport interface: what one device's end of the connection between devices can do.

Two transports implement it: `inprocess`, with greenlets, and `mpi`. Both check calls before they carry anything,
because an MPI may return garbage when devices disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from lib.engine.call import CollectiveCall
from lib.engine.collectives import Array
from lib.engine.metering.meter import Meter


class CallableInt(int):
    """A number that also answers when called: some published chapters write `self.num_devices()`."""

    __slots__ = ()

    def __call__(self) -> int:
        return int(self)


class Put(NamedTuple):
    """A one-sided write in transit: the number of the symmetric buffer, the place in it (byte offset, shape and
    strides in bytes), and the content."""

    buffer: int
    offset: int
    strides: tuple[int, ...]
    content: Array


class Port(Protocol):
    """One device's end of a transport. Arrays given to it may be reused as soon as a call returns; arrays it
    returns belong to the device."""

    device: CallableInt
    size: CallableInt
    meter: Meter | None
    apply_put: Callable[[Put], None]
    """Writes a put that has arrived into this device's symmetric buffers."""

    def collective(self, call: CollectiveCall, arr: Array) -> Any:
        """Meets the other devices of `call.group`; returns this device's result, as in `collectives`."""
        ...

    def fence(self, call: CollectiveCall, puts: Sequence[tuple[int, Put]]) -> list[Put]:
        """Meets all devices and delivers `puts`, each with its target; returns those that arrive here, in the order
        of the devices that sent them."""
        ...

    def try_put(self, to: int, put: Put) -> bool:
        """Writes into the target's buffer at once, if the transport does so; if False, `fence` has to deliver it."""
        ...

    def send(self, to: int, arr: Array) -> None:
        """Sends a copy of `arr`; never waits."""
        ...

    def receive(self, source: int) -> Array:
        """Waits for the next array from `source`: messages of a pair keep their order."""
        ...

    def yield_turn(self) -> None:
        """Lets the other devices run, where they share one thread."""
        ...


def call_place(port: Port, name: str, partner: object = "") -> str:
    """The place in a refusal: "device 0 of 4, send(1)". A partner that is no number is left out."""
    return f"device {port.device} of {port.size}, {name}({partner if isinstance(partner, int) else ''})"
