"""A number that also answers when called: some published chapters write `self.num_devices()`."""

from __future__ import annotations


class Number(int):
    """An int; calling it gives the same int."""

    __slots__ = ()

    def __call__(self) -> int:
        return int(self)
