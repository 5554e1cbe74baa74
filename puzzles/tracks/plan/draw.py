"""Draws a plan: where its time and memory go as a picture, its timeline as a page to explore, both as text."""

from __future__ import annotations

from lib.planning import Plan
from puzzles.catalog.plan.puzzle import PlanPuzzle
from puzzles.failure import Failure
from puzzles.tracks.pictures import import_drawing, report_failure
from puzzles.tracks.shown import OptionError
from puzzles.tracks.workbench import DrawOptions, Workbench

from .score import plan_of_file
from .words import plan_lines

DRAWN = 40_000
"""Events of a timeline that a page shows."""


def plan_picture(plan: Plan | None, puzzle: PlanPuzzle) -> str:
    """Where time and memory go, as SVG; empty if there is no plan, or where drawing is not installed."""
    try:
        import drawing

        return "" if plan is None else str(drawing.svg(drawing.draw_waterfall(plan, puzzle.title, puzzle.seconds)))
    except Exception:  # a picture that fails must not cost the report
        return ""


def timeline(plan: Plan | None, puzzle: PlanPuzzle) -> str:
    """The timeline as SVG; empty as above, or if it is too long to show."""
    try:
        from drawing import svg
        from drawing.runs.scene import scene_of
        from drawing.runs.timeline import draw_scene

        if plan is None or sum(map(len, plan.trace.ranks)) > DRAWN:
            return ""
        return str(svg(draw_scene(scene_of(plan.trace), title_of(plan), judged=False)))
    except Exception:  # as above
        return ""


def title_of(plan: Plan) -> str:
    """What a timeline shows: one of equal replicas."""
    return f"{plan.split}: one replica, in milliseconds"


def draw_plan_of(puzzle: PlanPuzzle, options: DrawOptions, bench: Workbench) -> bool:
    """`puzzles draw` of a plan: writes the picture or the timeline, and returns whether there is a plan.

    Raises:
        OptionError: these options are not supported.
        PuzzleError: the picture cannot be written.
    """
    if options.against or options.pareto or options.critical:
        raise OptionError(f"{puzzle.slug} is a plan; it is drawn without --against, --pareto and --critical")
    target = options.output or f"{puzzle.slug}.svg"
    drawing = import_drawing()
    if not options.text or options.output:
        drawing.require_ending(target)
    plan = plan_of_file(puzzle, bench)
    if isinstance(plan, Failure):
        return report_failure(puzzle.slug, plan, bench)
    if options.text:
        bench.console.print("\n".join(plan_lines(plan)), soft_wrap=True, markup=False, highlight=False)
    if not options.text or options.output:
        if drawing.is_picture(target):
            drawing.save(drawing.draw_waterfall(plan, puzzle.title, puzzle.seconds, options.dark), target)
        else:
            drawing.save(plan.trace, target, title_of(plan), colour=options.colour)
        bench.wrote(target)
    return True
