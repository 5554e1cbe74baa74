"""Reads an engine puzzle from the fields of its file."""

from __future__ import annotations

from puzzles.catalog.fields import NO_LIMIT, Fields
from puzzles.catalog.reading import rules_of, texts_of

from .figures import FIGURES
from .puzzle import COUNTED_CALLS, EnginePuzzle

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
