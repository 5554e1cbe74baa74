"""The streams of an inference loop: inputs that every device reads, outputs joined in the order of the inputs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lib.engine.transports.base import Port

from .copies import argument_for, copy_out, map_arrays


class InputStream:
    """A stream of inputs, read once for `size` devices. Each device gets all inputs; if an input is a list or tuple,
    each device gets its own item."""

    def __init__(self, stream: Iterable[Any], size: int) -> None:
        self.stream = iter(stream)
        self.size = size
        self.kept: dict[int, list[Any]] = {}
        """By number: an item that some device has not read yet, and how many have."""
        self.pulled = 0
        self.ended = False

    def reader(self, port: Port) -> Iterator[Any]:
        """The inputs of one device, copied."""
        number = 0
        while True:
            port.yield_turn()  # so that no device gets ahead of the others
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


class OutputStreams:
    """The outputs of all devices. The n-th outputs of each device belong together."""

    def __init__(self, written: list[deque[Any]]) -> None:
        self.written = written
        """By device: the outputs that have not been taken yet."""

    def writer(self, device: int) -> OutputStream:
        return OutputStream(self.written[device].append)

    def is_ready(self) -> bool:
        """True if every device has written its next output."""
        return all(self.written)

    def take(self, all_of_them: bool = False) -> Iterator[Any]:
        """Removes what is complete, or everything: an output if one device wrote it, else a row of all devices'
        outputs."""
        while self.is_ready() or (all_of_them and any(self.written)):
            row = [items.popleft() if items else None for items in self.written]
            there = [item for item in row if item is not None]
            if there:
                yield there[0] if len(there) == 1 else row


class OutputStream:
    """The output stream of one device. None is not an output, but counts as this device's n-th."""

    def __init__(self, keep: Callable[[Any], object]) -> None:
        self.keep = keep

    def write(self, item: Any) -> None:
        self.keep(map_arrays(item, copy_out))
