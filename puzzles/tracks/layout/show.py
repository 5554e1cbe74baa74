"""Draws the completed plan of a layout: operators with their strategies, edges with the bytes that they move."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from lib.layout import GraphPlan, complete, propagate
from puzzles.catalog.layout.puzzle import LayoutPuzzle
from puzzles.failure import Failure, write_file
from puzzles.tracks import base
from puzzles.tracks.base import OptionError
from puzzles.tracks.outcomes import capitalized
from puzzles.tracks.workbench import DrawOptions, TensorOptions, Workbench, as_svg, report_failure

from .judge import plan_of_file

if TYPE_CHECKING:
    from rich.text import Text

TEXT_WIDTH = 100
"""Columns of text in a file."""
MAX_DEVICES = 64
"""As many as the picture of who holds what shows."""


class Show(base.Show[LayoutPuzzle]):
    has_pictures = True

    def picture(self, puzzle: LayoutPuzzle, kept: str, judged: bool = True, colour: str = "layer") -> str:
        """The plan of a kept run as SVG; empty if there is none."""
        plan = self.track.judge.restored(puzzle, kept)
        return as_svg("drawing.layouts.graph:draw_plan", plan, puzzle.title, **limits(puzzle)) if plan else ""

    def picture_text(self, puzzle: LayoutPuzzle, kept: str, width: int, colour: str = "layer") -> str:
        from drawing.layouts.text import explained

        plan = self.track.judge.restored(puzzle, kept)
        return "" if plan is None else explained(plan, width).plain

    def sketch(self, puzzle: LayoutPuzzle, rendered: Callable[..., str]) -> str:
        """The graph as it is given, completed by the rule."""
        from drawing import svg
        from drawing.layouts.graph import draw_plan

        if not puzzle.given:
            return ""  # nothing to complete it from
        return svg(draw_plan(propagate(puzzle.graph()), "The graph as it is given, completed by the rule"))

    def draw(self, puzzle: LayoutPuzzle, options: DrawOptions, bench: Workbench) -> bool:
        """`puzzles draw` of a layout: writes the picture, and returns whether there is a plan."""
        if options.against or options.pareto or options.critical or options.colour != "layer":
            raise OptionError(f"{puzzle.slug} is a layout; only its plan can be drawn, without these options")
        target = options.output or f"{puzzle.slug}.svg"
        write = None if options.text and not options.output else _writer(puzzle, target, options.dark)
        plan = plan_of_file(puzzle, bench)
        if isinstance(plan, Failure):
            return report_failure(puzzle.slug, plan, bench)
        if options.text:
            bench.console.print(text_of_plan(plan, puzzle, options.width), soft_wrap=True, end="")
        if write is not None:
            write(plan)
            bench.wrote(target)
        return True

    def require_runnable(self, puzzle: LayoutPuzzle, options: TensorOptions) -> None:
        if options.output:
            raise OptionError(f"{puzzle.slug} is a layout, and 'puzzles draw' draws it; leave out -o")
        super().require_runnable(puzzle, options)

    def run_on_tensors(self, puzzle: LayoutPuzzle, options: TensorOptions, bench: Workbench) -> bool:
        from .run_on_tensors import replay_plan  # here, since a browser has no terminal

        return replay_plan(puzzle, options, bench)


def text_of_plan(plan: GraphPlan, puzzle: LayoutPuzzle, width: int) -> Text:
    """The plan, who holds what, and how the rule got there, as text of `width` columns."""
    from rich.text import Text  # here, since a browser shows plans too, and has no terminal

    from drawing.layouts.text import holders_text, plan_text, propagation_text

    head, steps = Text("\nWho holds what\n"), Text("\nStep by step\n")
    found = plan_text(plan, width, **limits(puzzle)) + head + holders_text(plan, width)
    return found + steps + propagation_text(plan, width)


def _writer(puzzle: LayoutPuzzle, target: str, dark: bool) -> Callable[[GraphPlan], None]:
    """What writes a plan to a file of this name: a picture, text as .txt, or a page with everything as .html."""
    import drawing
    from drawing.layouts.graph import draw_plan

    ending = Path(target).suffix.lower()
    if ending == ".txt":
        return lambda plan: write_file(target, text_of_plan(plan, puzzle, TEXT_WIDTH).plain)
    if ending == ".html":
        return lambda plan: write_file(target, plan_page(plan, puzzle, dark))
    drawing.require_ending(target, of_a_run=False)
    return lambda plan: drawing.save(draw_plan(plan, puzzle.title, dark, **limits(puzzle)), target)


def plan_page(plan: GraphPlan, puzzle: LayoutPuzzle, dark: bool = False) -> str:
    """A page that needs nothing else: the plan, who holds what, each step of the propagation, and all of it as text."""
    import drawing
    from drawing.layouts.graph import draw_plan, draw_plans, draw_propagation
    from drawing.layouts.tensor import draw_holders
    from drawing.palette import INK, PAPER, dark_variant

    pictures = [draw_plan(plan, "The plan", dark, **limits(puzzle))]
    if plan.graph.pins:
        title = "Ends propagated as GSPMD does"
        pictures.append(draw_plans({title: complete(puzzle.graph(), {}).plan, "The plan": plan}, title, dark))
    if plan.graph.devices <= MAX_DEVICES:
        pictures.append(draw_holders(plan, dark=dark, cap=puzzle.memory_cap))
    pictures.append(draw_propagation(plan, dark=dark))
    ink, paper = (dark_variant(colour) if dark else colour for colour in (INK, PAPER))
    style = f"body{{margin:2em;font-family:sans-serif;color:{ink};background:{paper}}}svg{{display:block;margin:1em 0}}"
    text = text_of_plan(plan, puzzle, TEXT_WIDTH).plain
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(puzzle.title)}</title>\n'
        f"<style>{style}</style>\n<h1>{escape(puzzle.title)}</h1>\n<p>{escape(capitalized(puzzle.limits))}.</p>\n"
        + "\n".join(map(drawing.svg, pictures))
        + f"\n<details><summary>The same as text</summary><pre>{escape(text)}</pre></details></html>\n"
    )


class PlanLimits(TypedDict):
    """The keyword arguments of `draw_plan` that a puzzle decides."""

    target: int
    cap: int
    given: tuple[str, ...]


def limits(puzzle: LayoutPuzzle) -> PlanLimits:
    """What a picture of a plan shows of its puzzle."""
    return {"target": puzzle.target, "cap": puzzle.memory_cap, "given": tuple(puzzle.given)}
