"""An engine puzzle: the texts that every puzzle has, a class to write, and targets per device; read from its file.

Figures that a class is judged by have a name each, and how they are read from the meters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from puzzles.catalog.fields import NO_LIMIT, Fields
from puzzles.catalog.puzzle import Puzzle, rules_of, texts_of

if TYPE_CHECKING:
    from .trial import Performed


# --- Figures ---


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


# --- The puzzle ---


COUNTED_CALLS = tuple("all_reduce reduce_scatter all_gather all_to_all send receive send_async barrier".split())
"""The calls that meters count, and that a puzzle can forbid."""


@dataclass(frozen=True, kw_only=True)
class EnginePuzzle(Puzzle):
    """A class to write; `slug` is its name."""

    targets: Mapping[str, int]
    """Upper limits per device, by the names in `figures`."""
    arithmetic: str
    """Derives the targets."""
    devices: int = 4
    """Number of devices in the first trial, which is the one shown."""
    records: tuple[Mapping[str, int], ...] = ()
    """The best figures known, where the targets leave room: of the class in `solutions/engine/records`, or else of the
    reference. A class that no record beats gets three stars."""
    imports: tuple[str, ...] = ()
    """Lines of the starter's file, after the lines of every engine puzzle."""
    trials: str = ""
    """The file that makes its trials, beside its own."""

    def targets_text(self) -> str:
        """The targets in words: '12,288 bytes sent, 20,480 flops'."""
        limits = [(limit, FIGURES[name].words) for name, limit in self.targets.items()]
        return ", ".join(f"{limit:,} {words.removesuffix('s') if limit == 1 else words}" for limit, words in limits)


DRAFT_FIGURES = ("sent", "peak", "weights")
"""What is measured of a class without targets."""

TRIALS = (
    "the path of a Python file that defines TRIALS. TOML cannot state how a class is tested: the right results come "
    "from a function. 'puzzles new NAME --track engine' writes a file to begin with"
)
"""What the message on a missing or wrong field says."""


def read_puzzle(slug: str, fields: Fields) -> EnginePuzzle:
    targets = fields.table("targets", dict.fromkeys(DRAFT_FIGURES, NO_LIMIT))
    for name in targets.names:
        if name not in FIGURES:
            targets.refuse_unknown("figure", name, FIGURES)
    limits = {name: targets.number(name, least=0) for name in targets.names}
    return EnginePuzzle(
        slug=slug,
        targets=limits,
        arithmetic=fields.text("arithmetic", "").strip(),
        devices=fields.number("devices", 4),
        imports=fields.texts("imports"),
        records=tuple({name: row.number(name, least=0) for name in limits} for row in fields.tables("records")),
        trials=fields.take("trials", TRIALS, lambda given: isinstance(given, str)),
        **rules_of(fields, COUNTED_CALLS),
        **texts_of(fields),
    )
