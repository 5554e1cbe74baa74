"""Reads a layout puzzle from the fields of its file."""

from __future__ import annotations

from lib.layout.program.notation import graph_from_data
from puzzles.catalog.fields import NO_LIMIT, Fields
from puzzles.catalog.reading import texts_of

from .puzzle import LayoutPuzzle


def read_puzzle(slug: str, fields: Fields) -> LayoutPuzzle:
    targets = fields.table("targets", {"bytes": NO_LIMIT, "memory": NO_LIMIT})
    moved = targets.number("bytes", least=0)
    data = {"uneven": False, **fields.table("graph").rest()}
    graph = graph_from_data(data)
    puzzle = LayoutPuzzle(
        slug=slug,
        build=lambda: graph_from_data({name: part for name, part in data.items() if name != "configured"}),
        given=dict(graph.strategies),
        annotations=fields.number("annotations"),
        memory_cap=targets.number("memory"),
        target=moved,
        best=targets.number("best", moved, least=0),
        least=targets.number("least", least=0) if "least" in targets else None,
        may_change=fields.flag("may_change"),
        is_proven=targets.flag("proven"),
        **texts_of(fields),
    )
    targets.done()
    return puzzle
