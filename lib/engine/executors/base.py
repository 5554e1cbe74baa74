"""The executor interface: runs a player's class on every device of one transport; and what all executors are told."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from lib.engine.metering.meter import Reading

MAX_NAMED = 8
"""Pairs of devices that a message names."""


@dataclass(frozen=True)
class LaunchOptions:
    """A class to run on `size` devices, and how; named as the arguments of `launch`."""

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


def unread_text(unread: Sequence[tuple[int, int, int]]) -> str:
    """The message about unreceived messages: (from, to, how many)."""
    pairs = [f"{n} from device {source} to device {to}" for source, to, n in unread[:MAX_NAMED]]
    pairs += [f"and between {len(unread) - MAX_NAMED} other pairs"] if len(unread) > MAX_NAMED else []
    return f"messages were sent and never received: {', '.join(pairs)}; receive them, or do not send them"
