"""Reads an engine puzzle from the fields of a file."""

from puzzles.catalog.engine import EnginePuzzle
from puzzles.catalog.engine.figures import FIGURES
from puzzles.catalog.engine.puzzle import COUNTED_CALLS
from puzzles.catalog.fields import NO_LIMIT, Fields
from puzzles.catalog.reading import rules_of, texts_of

DRAFT_FIGURES = ("sent", "peak", "weights")
"""What is measured of a class without targets."""


def read_puzzle(slug: str, fields: Fields) -> EnginePuzzle:
    targets = fields.table("targets", dict.fromkeys(DRAFT_FIGURES, NO_LIMIT))
    limits = {name: targets.number(name, least=0) for name in FIGURES if name in targets}
    for name in targets.rest():
        Fields(targets.where, {"figure": name}).one_of("figure", FIGURES)
    return EnginePuzzle(
        slug=slug,
        targets=limits,
        arithmetic=fields.text("arithmetic", "").strip(),
        devices=fields.number("devices", 4),
        imports=fields.texts("imports"),
        records=tuple({name: row.number(name, least=0) for name in limits} for row in fields.tables("records")),
        **rules_of(fields, COUNTED_CALLS),
        **texts_of(fields),
    )
