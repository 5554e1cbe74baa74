"""A picture for a puzzle's page, as SVG: what each rank keeps, the graph to lay out, or a collective that it names."""

from __future__ import annotations

from typing import Any

from puzzles.catalog.layout.puzzle import LayoutPuzzle
from puzzles.catalog.puzzle import Puzzle
from puzzles.catalog.schedule import SchedulePuzzle
from puzzles.custom import home_of
from puzzles.notebook.authoring.collective_svg import collective_svg
from puzzles.notebook.authoring.overview_svg import overview_svg
from puzzles.tracks import Track

COLLECTIVES = {"all-reduce": "allreduce", "reduce-scatter": "scatterreduce", "all-gather": "allgather"}
"""By the name in texts, that of its picture."""


def picture_of(track: Track[Any], puzzle: Puzzle) -> str:
    """The picture; empty if there is none."""
    if isinstance(puzzle, SchedulePuzzle):
        return "" if home_of(puzzle.slug) else overview_svg(puzzle)  # nobody drew a sketch for a teacher's puzzle
    if isinstance(puzzle, LayoutPuzzle):
        return layout_svg(puzzle)
    words = f"{puzzle.statement} {puzzle.concept} {puzzle.in_practice}".lower()
    named = [picture for name, picture in COLLECTIVES.items() if name in words]
    return collective_svg(named[0]) if named else ""


def layout_svg(puzzle: LayoutPuzzle) -> str:
    """The graph as it is given, completed by the rule."""
    from drawing import svg
    from drawing.layouts.graph import draw_plan
    from lib.layout import propagate

    if not puzzle.given:
        return ""  # nothing to complete it from
    return svg(draw_plan(propagate(puzzle.graph()), "The graph as it is given, completed by the rule"))
