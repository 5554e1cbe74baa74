"""The two ends of an inference loop: inputs that every device can read, outputs in the order of the inputs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lib.engine.transports.base import Port


class Inputs:
    """A stream of inputs, read once. Every device that reads gets them all, each its own if an item is a list."""

    def __init__(self, stream: Iterable[Any], size: int) -> None:
        self.stream = iter(stream)
        self.size = size
        self.kept: dict[int, list[Any]] = {}
        """By number: the items that some device has not read yet, and how many have."""
        self.pulled = 0
        self.ended = False

    def reader(self, port: Port) -> Iterator[Any]:
        from .device import argument_for

        number = 0
        while True:
            port.step_aside()  # reading an input is where other devices get their turn
            if number == self.pulled and not self.ended:
                self._pull()
            if number >= self.pulled:
                return
            entry = self.kept[number]
            item, entry[1] = entry[0], entry[1] + 1
            if entry[1] == self.size:
                del self.kept[number]
            number += 1
            mine = item[port.device] if isinstance(item, list | tuple) else item
            yield argument_for(mine, False, port.meter)
            del mine

    def _pull(self) -> None:
        try:
            self.kept[self.pulled] = [next(self.stream), 0]
        except StopIteration:
            self.ended = True
        else:
            self.pulled += 1


class Outputs:
    """What the devices write. The n-th things that they write belong together."""

    def __init__(self, written: list[deque[Any]]) -> None:
        self.written = written
        """By device: what has not been taken yet."""

    def writer(self, device: int) -> Output:
        return Output(self.written[device].append)

    def is_ready(self) -> bool:
        """Whether every device has written its next."""
        return all(self.written)

    def take(self, all_of_them: bool = False) -> Iterator[Any]:
        while self.is_ready() or (all_of_them and any(self.written)):
            row = [items.popleft() if items else None for items in self.written]
            there = [item for item in row if item is not None]
            if there:
                yield there[0] if len(there) == 1 else row


class Output:
    """Where one device writes its outputs; None is none, but counts as this device's turn."""

    def __init__(self, keep: Callable[[Any], object]) -> None:
        self.keep = keep

    def write(self, item: Any) -> None:
        from .device import mapped, outside

        self.keep(mapped(item, outside))
