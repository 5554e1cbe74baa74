"""What the engine asks of a library of arrays; everything else is done with methods that all arrays have."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from lib.engine.collectives import Array
from lib.engine.metering.arrays import LentBlock
from lib.engine.metering.meter import Meter


class ArrayLibrary(Protocol):
    """One library of arrays, on one device."""

    xp: Any
    """Its functions: an array namespace."""
    device: Any
    """Where arrays are."""
    array_types: tuple[Any, ...]
    """Of the arrays in arguments and results."""
    plain_type: type | None
    """The type that `plain` returns, where an array of it needs no check."""

    def plain(self, given: Any) -> Array:
        """What a player gives, as an array that can be sent, or RuleError."""
        ...

    def adopted(self, given: Array) -> Array:
        """A new array of the device, with the elements of an array of numpy or of this library."""
        ...

    def copy(self, array: Array) -> Array:
        """A new array."""
        ...

    def copy_out(self, array: Array) -> Array:
        """A copy that belongs to no device."""
        ...

    def on_host(self, array: Array) -> Array:
        """A copy of numpy, for a slower memory."""
        ...

    def charged(self, array: Array, meter: Meter) -> Array:
        """The array, with its memory charged to `meter`."""
        ...

    def lend(self, array: Array, meter: Meter | None) -> tuple[Array, LentBlock | None]:
        """An array that does not belong to the device, and its block, which is not charged yet."""
        ...

    def zeros(self, shape: Any, dtype: Any) -> Array:
        """A new array that is not charged."""
        ...

    def strides(self, array: Array) -> tuple[int, ...]: ...

    def offset_in(self, buffer: Array, view: Array) -> int | None:
        """Where a view of a buffer starts in it; None if it is no view of it."""
        ...

    def place_in(self, buffer: Array, offset: int, strides: tuple[int, ...], like: Array) -> Array:
        """The view of a buffer that starts there, with the shape of an array."""
        ...

    def watched(self, cls: type, metered: bool) -> AbstractContextManager[None]:
        """A context in which the code of a class is metered."""
        ...
