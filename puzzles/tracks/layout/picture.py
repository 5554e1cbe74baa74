"""The picture of a layout's plan, as a verdict shows it."""

from typing import TypedDict

from puzzles.catalog.layout.puzzle import LayoutPuzzle
from puzzles.tracks.later import as_svg

from .score import plan_of


class PlanLimits(TypedDict):
    """The keyword arguments of `draw_plan` that a puzzle decides."""

    target: int
    cap: int
    given: tuple[str, ...]


def picture(puzzle: LayoutPuzzle, kept: str, judged: bool = True) -> str:
    """The plan of a kept run as SVG; empty if there is none."""
    plan = plan_of(puzzle, kept)
    return as_svg("drawing.layouts.graph:draw_plan", plan, puzzle.title, **limits(puzzle)) if plan else ""


def picture_text(puzzle: LayoutPuzzle, kept: str, width: int) -> str:
    """The same as text."""
    from drawing.layouts.text import explained

    plan = plan_of(puzzle, kept)
    return "" if plan is None else explained(plan, width).plain


def limits(puzzle: LayoutPuzzle) -> PlanLimits:
    """What a picture of a plan shows of its puzzle."""
    return {"target": puzzle.target, "cap": puzzle.memory_cap, "given": tuple(puzzle.given)}
