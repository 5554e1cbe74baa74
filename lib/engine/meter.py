"""What one device has used: counted, never estimated, so it is the same on every transport and in every run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from .reference import bytes_sent


@dataclass(frozen=True)
class Reading:
    """A meter's figures. `sent` in bytes (ring-optimal), `calls` by kind, `flops` of matrix products (two for each
    multiply-add), `live` and `peak` in bytes of arrays, `stored` the most that was live while this device waited in
    a receive, without what came; `clock` in flops: when this device would be done if flops
    were all that takes time and nobody could receive what is not yet sent."""

    sent: int
    calls: Mapping[str, int]
    flops: int
    live: int
    peak: int
    stored: int
    clock: int

    @property
    def collectives(self) -> int:
        """Calls that all devices of a group make together, barriers not counted."""
        return sum(n for name, n in self.calls.items() if name in COLLECTIVES)

    @property
    def messages(self) -> int:
        return self.calls.get("send", 0) + self.calls.get("send_async", 0)


COLLECTIVES = frozenset(("all_reduce", "all_gather", "reduce_scatter", "all_to_all"))


class Meter:
    """The running figures of one device; as in `Reading`."""

    __slots__ = ("calls", "clock", "flops", "live", "peak", "sent", "stored")

    def __init__(self) -> None:
        self.sent = 0
        self.calls: Counter[str] = Counter()
        self.flops = 0
        self.live = 0
        self.peak = 0
        self.stored = 0
        self.clock = 0

    def hold(self, nbytes: int) -> None:
        self.live += nbytes
        if self.live > self.peak:
            self.peak = self.live

    def compute(self, flops: int) -> None:
        self.flops += flops
        self.clock += flops

    def communicate(self, name: str, nbytes: int, n: int) -> None:
        """One call among `n` devices, to which this one brings `nbytes`."""
        self.calls[name] += 1
        self.sent += bytes_sent(name, nbytes, n)

    def waited(self) -> None:
        """A message has come, and is not charged yet: what is live was stored while this device waited for it."""
        if self.live > self.stored:
            self.stored = self.live

    def reading(self) -> Reading:
        calls = dict(sorted(self.calls.items()))
        return Reading(self.sent, calls, self.flops, self.live, self.peak, self.stored, self.clock)


class Current:
    """Whose code is running: the meter that new arrays and flops are charged to, or None."""

    __slots__ = ("meter",)

    def __init__(self) -> None:
        self.meter: Meter | None = None


current = Current()
