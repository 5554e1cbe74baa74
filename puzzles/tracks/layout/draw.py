"""Draws the completed plan of a layout: operators with their strategies, edges with the bytes that they move."""

from __future__ import annotations

from lib.layout import GraphPlan
from puzzles.catalog.layout.puzzle import LayoutPuzzle
from puzzles.failure import Failure
from puzzles.tracks.base import OptionError
from puzzles.tracks.pictures import import_drawing, report_failure
from puzzles.tracks.workbench import DrawOptions, Workbench

from .score import plan_of_file


def plan_picture(plan: GraphPlan | None, title: str) -> str:
    """The plan as SVG; empty if there is none, or where drawing is not installed."""
    try:
        import drawing
        from drawing.layouts.graph import draw_plan

        return "" if plan is None else str(drawing.svg(draw_plan(plan, title)))
    except Exception:  # a picture that fails must not cost the report
        return ""


def draw_plan_of(puzzle: LayoutPuzzle, options: DrawOptions, bench: Workbench) -> bool:
    """`puzzles draw` of a layout: writes the picture, and returns whether there is a plan.

    Raises:
        OptionError: these options are not supported.
        PuzzleError: the picture cannot be written.
    """
    if options.text or options.against or options.pareto or options.critical or options.colour != "layer":
        raise OptionError(f"{puzzle.slug} is a layout; only its plan can be drawn, without these options")
    target = options.output or f"{puzzle.slug}.svg"
    drawing = import_drawing()
    drawing.require_ending(target, of_a_run=False)
    from drawing.layouts.graph import draw_plan

    plan = plan_of_file(puzzle, bench)
    if isinstance(plan, Failure):
        return report_failure(puzzle.slug, plan, bench)
    drawing.save(draw_plan(plan, puzzle.title, options.dark), target)
    bench.wrote(target)
    return True
