"""Counts the bytes, flops, memory and simulated time of one device.

Everything is counted from calls and shapes and nothing is timed, so figures are the same on every transport and in
every run.
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lib.engine.collectives import COLLECTIVES
from lib.engine.player_code import running_line


def unused_memory() -> dict[str, int]:
    """The figures of a slower memory before its first use."""
    return dict.fromkeys(("read", "written", "live", "peak"), 0)


MAX_NUMBERS_OUT = 1024
"""Floats that a device may take out of arrays for free: maxima, losses, factors of rows."""


@dataclass(frozen=True)
class Reading:
    """A meter's figures at one moment.

    `sent`: bytes, ring-optimal; `unpacked`: the same, if numbers cost what `lib.engine.call.unpacked_bytes` says.
    `calls`: their number, by kind. `flops`: of products, two for each, as of a multiply-add.
    `live` and `peak`: bytes of arrays. `stored`: the most bytes that were live while this device waited in a receive,
    without what arrived. `clock`, in flops: when this device would finish if only flops and the links to slower
    memories took time, and a message could not be received before it is sent. `host` and `disk`: bytes "read" from this
    memory and "written" to it, bytes that it holds now, "live", and the most it has held, "peak".
    """

    sent: int
    unpacked: int
    calls: Mapping[str, int]
    flops: int
    live: int
    peak: int
    stored: int
    clock: int
    host: Mapping[str, int] = field(default_factory=unused_memory)
    disk: Mapping[str, int] = field(default_factory=unused_memory)
    peak_line: int = 0
    """The line of the player's file that was running when the peak was reached; 0 if none was."""
    held: Mapping[str, int] = field(default_factory=dict)
    """Bytes that were live at the peak, by the line that made them."""
    idle: Mapping[str, int] = field(default_factory=dict)
    """Bytes of `held` that no later operation read."""
    products: Mapping[str, int] = field(default_factory=dict)
    """Flops by the line that computed them."""
    widened_line: int = 0
    """The first line that made float64 arrays of float32 by a number of numpy, such as np.sqrt(16); 0 if none did."""

    @property
    def collectives(self) -> int:
        """Calls that all devices of a group make together, not counting barriers."""
        return sum(n for name, n in self.calls.items() if name in COLLECTIVES)

    @property
    def messages(self) -> int:
        return self.calls.get("send", 0) + self.calls.get("send_async", 0)


class Life:
    """A block: its bytes, the line that made it, and when it was made and last read."""

    __slots__ = ("born", "line", "nbytes", "read")

    def __init__(self, nbytes: int, line: int, born: int) -> None:
        self.nbytes, self.line = nbytes, line
        self.born = self.read = born


class Lives:
    """All blocks of a device that are live or may be live at the peak. Time passes when a block is made."""

    __slots__ = ("_ended", "_live", "_peak_time", "time")

    def __init__(self) -> None:
        self.time = 0
        self._peak_time = 0
        self._live: dict[int, Life] = {}
        self._ended: list[Life] = []

    def begin(self, nbytes: int) -> Life:
        self.time += 1
        life = Life(nbytes, running_line(), self.time)
        self._live[id(life)] = life
        return life

    def end(self, life: Life) -> None:
        del self._live[id(life)]
        if life.born <= self._peak_time:
            self._ended.append(life)

    def mark_peak(self) -> None:
        """Records that the newest block makes the peak."""
        self._peak_time = self.time
        self._ended.clear()

    def at_peak(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """The bytes that are live at the peak, by the line that made them, and the bytes of these that no later
        operation reads. Blocks that the operation at the peak, or the one before it, may read count as read."""
        live, idle = Counter[str](), Counter[str]()
        for life in (*self._ended, *self._live.values()):
            if life.born <= self._peak_time:
                live[str(life.line)] += life.nbytes
                if life.read < self._peak_time - 1:
                    idle[str(life.line)] += life.nbytes
        return dict(live), dict(idle)


class Meter:
    """The running figures of one device, named as in `Reading`. `byte_time`: for each slower memory, the flops on the
    clock that a transferred byte takes."""

    __slots__ = (
        "byte_time",
        "calls",
        "clock",
        "disk",
        "ends",
        "flops",
        "host",
        "live",
        "lives",
        "numbers_out",
        "peak",
        "peak_line",
        "products",
        "scales",
        "sent",
        "stored",
        "unpacked",
        "widened_line",
    )

    def __init__(self, byte_time: Mapping[str, int] | None = None) -> None:
        self.sent = self.unpacked = 0
        self.calls: dict[str, int] = defaultdict(int)
        self.flops = 0
        self.products: dict[int, int] = defaultdict(int)
        """Flops by line."""
        self.scales: set[Any] = set()
        """Python numbers by which this device has scaled arrays."""
        self.numbers_out = 0
        """How many floats this device has converted from arrays to numbers."""
        self.live = 0
        self.lives = Lives()
        self.peak = 0
        self.peak_line = 0
        self.widened_line = 0
        self.stored = 0
        self.clock = 0
        self.host = unused_memory()
        self.disk = unused_memory()
        self.byte_time = byte_time or {}
        self.ends: list[tuple[str, int]] = []
        """For each transfer so far: its memory, and the time on the clock at which it ends."""

    def hold(self, nbytes: int) -> Life:
        """Charges a block, until `release`."""
        life = self.lives.begin(nbytes)
        self.live += nbytes
        if self.live > self.peak:
            self.peak = self.live
            self.peak_line = life.line
            self.lives.mark_peak()
        return life

    def release(self, life: Life) -> None:
        self.live -= life.nbytes
        self.lives.end(life)

    def compute(self, flops: int) -> None:
        self.flops += flops
        self.clock += flops
        self.products[running_line()] += flops

    def multiply(self, flops: int) -> None:
        if flops:
            self.compute(flops)

    def take_out(self, count: int) -> None:
        """Counts floats that leave arrays as numbers. What is computed with them is not seen, so after the first
        `MAX_NUMBERS_OUT` each counts as one operation."""
        self.numbers_out += count
        self.multiply(max(0, min(count, self.numbers_out - MAX_NUMBERS_OUT)))

    def within_kernel(self) -> "Meter":
        """A meter of what the device computes in a fused kernel, whose memory is not charged to it."""
        return KernelMeter()

    def transfer(self, memory: str, nbytes: int) -> int:
        """Queues a transfer on the link to a slower memory; returns its number, for `wait_for`."""
        free_at = next((end for kind, end in reversed(self.ends) if kind == memory), 0)
        self.ends.append((memory, max(free_at, self.clock) + nbytes * self.byte_time.get(memory, 0)))
        return len(self.ends) - 1

    def wait_for(self, transfer: int) -> None:
        """Advances the clock to the end of a transfer, unless that has passed."""
        self.clock = max(self.clock, self.ends[transfer][1])

    def communicate(self, name: str, traffic: tuple[int, int] = (0, 0)) -> None:
        """Counts one call and the bytes that it sends, with numbers as they are and unpacked."""
        self.calls[name] += 1
        self.sent += traffic[0]
        self.unpacked += traffic[1]

    def widen(self) -> None:
        """Called when an operation has made float64 of float32 arrays."""
        self.widened_line = self.widened_line or running_line()

    def record_stored(self) -> None:
        """Called when a message has arrived and is not charged yet, so that all live bytes were stored during the
        wait."""
        if self.live > self.stored:
            self.stored = self.live

    def reading(self) -> Reading:
        calls = dict(sorted(self.calls.items()))
        slower = dict(self.host), dict(self.disk)
        return Reading(
            *(self.sent, self.unpacked, calls, self.flops, self.live, self.peak, self.stored, self.clock),
            *slower,
            self.peak_line,
            *self.lives.at_peak(),
            {str(line): flops for line, flops in self.products.items()},
            self.widened_line,
        )


class KernelMeter(Meter):
    """Counts matrix products only, as plans predict them: a compiler fuses other products into neighbouring
    operations."""

    def multiply(self, flops: int) -> None:
        """Counts nothing."""


class Current(threading.local):
    """The meter of the device whose code is running in this thread, or None. New arrays and flops are charged to it.

    A thread that runs no devices, such as one that a player starts, is charged to the device of the newest thread that
    does.
    """

    meter: Meter | None

    def __getattr__(self, name: str) -> Meter | None:
        """Called in a thread that has never set `meter`."""
        return _newest[0].get(name)

    def run_here(self) -> None:
        """Called by a thread that is about to run devices."""
        self.meter = None
        _newest[0] = self.__dict__


_newest: list[dict[str, Meter | None]] = [{}]


current = Current()


@contextmanager
def unmetered() -> Iterator[None]:
    """A context in which nothing is charged to any device."""
    before, current.meter = current.meter, None
    try:
        yield
    finally:
        current.meter = before
