"""Draws the completed plan of a layout: operators with their strategies, edges with the bytes that they move."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path

from rich.text import Text

from lib import PuzzleError
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
    if options.against or options.pareto or options.critical or options.colour != "layer":
        raise OptionError(f"{puzzle.slug} is a layout; only its plan can be drawn, without these options")
    target = options.output or f"{puzzle.slug}.svg"
    write = None if options.text and not options.output else _writer(puzzle, target, options.dark)
    plan = plan_of_file(puzzle, bench)
    if isinstance(plan, Failure):
        return report_failure(puzzle.slug, plan, bench)
    if options.text:
        bench.console.print(Text(plan.explain()), soft_wrap=True)
    if write is not None:
        write(plan)
        bench.wrote(target)
    return True


def _writer(puzzle: LayoutPuzzle, target: str, dark: bool) -> Callable[[GraphPlan], None]:
    """What writes a plan to a file of this name: a picture, the explained plan as .txt, or both as .html.

    Raises:
        PuzzleError: the ending is unknown, or what draws is not installed.
    """
    ending = Path(target).suffix.lower()
    if ending == ".txt":
        return lambda plan: write_file(target, plan.explain() + "\n")
    drawing = import_drawing()
    if ending != ".html":
        drawing.require_ending(target, of_a_run=False)
    from drawing.layouts.graph import draw_plan

    if ending == ".html":
        return lambda plan: write_file(
            target, plan_page(puzzle.title, drawing.svg(draw_plan(plan, puzzle.title, dark)), plan)
        )
    return lambda plan: drawing.save(draw_plan(plan, puzzle.title, dark), target)


def plan_page(title: str, picture: str, plan: GraphPlan) -> str:
    """A page with a plan's picture and its explanation, line by line."""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f"{picture}\n<pre>{escape(plan.explain())}</pre></html>\n"
    )


def write_file(target: str, text: str) -> None:
    """Writes a text.

    Raises:
        PuzzleError: the file cannot be written.
    """
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as why:
        raise PuzzleError(f"cannot write {target}: {(why.strerror or str(why)).lower()}") from None
