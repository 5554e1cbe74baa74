"""Records the bytes that devices hand to the transport, independently of the meters, by device and call.

The grader compares both: a class that tampers with its meter has to tamper with this in the same way.
"""

from __future__ import annotations

from collections import Counter
from types import TracebackType
from typing import Any, Self

from lib.engine.collectives import bytes_brought
from lib.engine.transports.inprocess import InProcessPort

from .isolate_modules import is_loading


class TrafficLog:
    """Counts each (device, call, bytes brought, devices in the group) while it is entered. No object of the engine
    refers to it."""

    def __init__(self) -> None:
        self._rows: Counter[tuple[int, str, int, int]] = Counter()
        self._originals = (InProcessPort.collective, InProcessPort.send)

    def __enter__(self) -> Self:
        rows, (collective, send) = self._rows, self._originals

        def logged_collective(port: InProcessPort, call: Any, arr: Any) -> Any:
            if not is_loading():
                rows[int(port.device), str(call.name), int(arr.nbytes), len(call.group)] += 1
            return collective(port, call, arr)

        def logged_send(port: InProcessPort, to: int, arr: Any) -> None:
            if not is_loading():
                rows[int(port.device), "send", int(bytes_brought(arr)), 2] += 1
            send(port, to, arr)

        InProcessPort.collective = logged_collective  # type: ignore[method-assign,assignment]
        InProcessPort.send = logged_send  # type: ignore[method-assign,assignment]
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        InProcessPort.collective, InProcessPort.send = self._originals  # type: ignore[method-assign]

    def rows(self) -> list[list[Any]]:
        """The counts as JSON, with the number of times last in each row."""
        return [[*row, times] for row, times in self._rows.items()]
