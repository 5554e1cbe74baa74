"""What an engine puzzle is: a class to write, its targets for each device, and the words around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from puzzles.catalog.schedule.puzzle import Source

from .figures import FIGURES

CREDIT = (
    "The engine's interface and its two-layer model follow a chapter on sharding strategies (a fake API over numpy)."
)


@dataclass(frozen=True)
class EnginePuzzle:
    """One puzzle. `slug` is the name of the class that solves it; `targets` are upper limits for every device;
    `arithmetic` derives them. `devices` are those of the first trial, which is the one shown."""

    slug: str
    title: str
    targets: Mapping[str, int]
    arithmetic: str
    statement: str
    starter: str
    hints: tuple[str, ...]
    concept: str
    in_practice: str
    sources: tuple[Source, ...]
    devices: int = 4
    imports: tuple[str, ...] = ()
    """Lines of the starter's file, after those that every engine puzzle has."""

    def targets_text(self) -> str:
        """The targets in words: '12,288 bytes sent, 20,480 flops'."""
        told = [(limit, FIGURES[name].words) for name, limit in self.targets.items()]
        return ", ".join(f"{limit:,} {words.removesuffix('s') if limit == 1 else words}" for limit, words in told)
