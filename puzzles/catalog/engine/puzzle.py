"""An engine puzzle: the texts that every puzzle has, a class to write, and targets per device; read from its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from puzzles.catalog.fields import NO_LIMIT, Fields
from puzzles.catalog.puzzle import Puzzle, rules_of, texts_of

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
