"""Notes what devices hand to the transport, beside the meters: who brought how many bytes to which call."""

from __future__ import annotations

from collections import Counter
from types import TracebackType
from typing import Any, Self

from lib.engine.collectives import payload_bytes
from lib.engine.transports.inprocess import InProcessPort

from .isolate_modules import is_loading


class Tally:
    """While it is on: how often there was (device, call, bytes brought, devices in the group). No object of the engine
    refers to it."""

    def __init__(self) -> None:
        self._rows: Counter[tuple[int, str, int, int]] = Counter()
        self._were = (InProcessPort.collective, InProcessPort.send)

    def __enter__(self) -> Self:
        rows, (collective, send) = self._rows, self._were

        def watched_collective(port: InProcessPort, call: Any, arr: Any) -> Any:
            if not is_loading():
                rows[int(port.device), str(call.name), int(arr.nbytes), len(call.group)] += 1
            return collective(port, call, arr)

        def watched_send(port: InProcessPort, to: int, arr: Any) -> None:
            if not is_loading():
                rows[int(port.device), "send", int(payload_bytes(arr)), 2] += 1
            send(port, to, arr)

        InProcessPort.collective = watched_collective  # type: ignore[method-assign]
        InProcessPort.send = watched_send  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        InProcessPort.collective, InProcessPort.send = self._were  # type: ignore[method-assign]

    def told(self) -> list[list[Any]]:
        """All of it, as JSON; how often comes last."""
        return [[*row, times] for row, times in self._rows.items()]
