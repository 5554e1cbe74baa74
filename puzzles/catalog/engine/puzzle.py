"""An engine puzzle: the texts that every puzzle has, a class to write, and targets per device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from puzzles.catalog.puzzle import Puzzle

from .figures import FIGURES

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
