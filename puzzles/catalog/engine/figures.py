"""Figures that a class is judged by: the name of each, and how it is read from the meters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .trial import Performed


class Figure(NamedTuple):
    """A figure's name and value: the maximum over devices, unless the name says otherwise."""

    words: str
    of: Callable[[Performed], int]


def _most(name: str, reading: int = -1) -> Callable[[Performed], int]:
    return lambda performed: max(getattr(meter, name) for meter in performed.readings[reading])


def _calls(name: str) -> Callable[[Performed], int]:
    return lambda performed: max(meter.calls.get(name, 0) for meter in performed.readings[-1])


def _stored(performed: Performed) -> int:
    """Bytes held while waiting for a message, minus those held since loading: weights, and room for gradients."""
    pairs = zip(performed.readings[-1], performed.readings[0])
    return max(max(meter.stored - loaded.live, 0) for meter, loaded in pairs)


def _uplink(performed: Performed) -> int:
    """Bytes sent by all devices except device 0, the server."""
    return sum(meter.sent for meter in performed.readings[-1][1:])


def _tier(kind: str, name: str, reading: int = -1) -> Callable[[Performed], int]:
    return lambda performed: max(getattr(meter, kind)[name] for meter in performed.readings[reading])


def _elapsed(performed: Performed) -> int:
    loaded, ended = (max(meter.clock for meter in performed.readings[reading]) for reading in (0, -1))
    return ended - loaded


FIGURES: Mapping[str, Figure] = {
    "sent": Figure("bytes sent", _most("sent")),
    "uplink": Figure("bytes sent by all clients together", _uplink),
    "flops": Figure("flops", _most("flops")),
    "collectives": Figure("collective calls", _most("collectives")),
    "messages": Figure("messages sent", _most("messages")),
    "receives": Figure("messages received", _calls("receive")),
    "barriers": Figure("barriers", _calls("barrier")),
    "peak": Figure("peak bytes", _most("peak")),
    "weights": Figure("bytes after loading", _most("live", 0)),
    "kept": Figure("bytes kept at the end", _most("live")),
    "stored": Figure("bytes stored while it waits for a message", _stored),
    "clock": Figure("flops until the last output", _most("clock")),
    "elapsed": Figure("flops of time after loading", _elapsed),
    "host_read": Figure("bytes read from the host", _tier("host", "read")),
    "host_loaded": Figure("bytes on the host after loading", _tier("host", "live", 0)),
    "host_peak": Figure("bytes on the host at most", _tier("host", "peak")),
    "disk_read": Figure("bytes read from the disk", _tier("disk", "read")),
}
