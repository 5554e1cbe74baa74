"""Charges the numbers that a recording keeps outside of arrays.

A recording does not say when a number is let go, because no recorder sees who still refers to it. So a number counts as
memory from the step that makes it to the last one that reads it.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from lib.engine.metering import Life, Meter

from .functions import UnrepeatableError

NUMBER = 8
"""Bytes that a number of Python counts as, and of the one number that a device may use for free between two calls of
the engine."""

MAX_NUMBER = 32
"""Bytes of numpy's longest number. Records and texts of any length, which are scalars, too, are no numbers."""


class HeldNumbers:
    """Those of one device."""

    def __init__(self, meter: Meter, recording: Any) -> None:
        self._meter = meter
        self._uses = Counter(_numbers_read(recording))
        """By the key of a number: how often it is still read."""
        self._lives: dict[int, Life] = {}
        """What is charged, by key."""
        self._free: tuple[int, int] | None = None
        """The number that is not charged yet: its key, and its bytes."""

    def hold(self, key: int, number: Any) -> int:
        """Charges a number if it is still read; returns its bytes."""
        nbytes: int = getattr(number, "nbytes", NUMBER)
        if nbytes > MAX_NUMBER or isinstance(number, np.flexible):
            raise UnrepeatableError("it takes records or texts out of arrays")
        self._let_go(key)
        if not self._uses[key]:
            return nbytes
        if self._free is None and nbytes <= NUMBER:
            self._free = key, nbytes
        else:
            self._lives[key] = self._meter.hold(nbytes)
        return nbytes

    def read(self, key: int) -> None:
        """Called when a step reads a number."""
        self._uses[key] -= 1
        if self._uses[key] <= 0:
            self._let_go(key)

    def charge(self) -> None:
        """Charges the free number, too, because it is kept longer than one computation needs it."""
        if self._free is not None:
            key, nbytes = self._free
            self._lives[key], self._free = self._meter.hold(nbytes), None

    def _let_go(self, key: int) -> None:
        if self._free is not None and self._free[0] == key:
            self._free = None
        elif key in self._lives:
            self._meter.release(self._lives.pop(key))


def _numbers_read(one: Any) -> Iterator[int]:
    """The keys of the numbers that recorded data refer to, as often as they do."""
    match one:
        case [first, *_] if not isinstance(first, str):  # an array would be compared with the words below
            for part in one:
                yield from _numbers_read(part)
        case ("known", int(key)) | ("as", str(), int(key)) | ("plus", int(key), int()) | ["inserted", _, _, int(key)]:
            yield key
        case list() | tuple():
            for part in one:
                yield from _numbers_read(part)
        case dict():
            for part in one.values():
                yield from _numbers_read(part)
