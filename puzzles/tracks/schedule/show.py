"""Shows a schedule: a kept run as a timeline, among the records and as text; a player's file, drawn or on tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from lib import Trace, referee
from puzzles.catalog.schedule import SchedulePuzzle
from puzzles.text_lines import COLOURS
from puzzles.tracks import base
from puzzles.tracks.base import DrawOptions, TensorOptions, Workbench, as_svg

from .feedback import reference_run
from .judge import MAX_OPERATIONS, parse_trace

if TYPE_CHECKING:
    from .free_game import FreeGame

MAX_SIZE, MAX_TICKS = 256, 100_000
"""Layers, batches and ranks; ticks. Of a forged trace that failed, nothing larger is drawn."""


class Show(base.Show[SchedulePuzzle]):
    has_pictures = True
    colours = COLOURS

    def picture(self, puzzle: SchedulePuzzle, kept: str, judged: bool = True, colour: str = "layer") -> str:
        """A kept run as SVG; empty if there is none."""
        return timeline(parse_trace(kept), puzzle.title, judged, colour) if kept else ""

    def pictures(
        self, puzzle: SchedulePuzzle, kept: str, figures: Mapping[str, float], colour: str = "layer"
    ) -> tuple[str, str]:
        """The picture, and a run that was correct among the records of its puzzle."""
        mine = [("yours", referee(parse_trace(kept)))] if figures else []
        pareto = as_svg("drawing:draw_pareto", puzzle.goal, mine, puzzle.title) if mine else ""
        return self.picture(puzzle, kept, colour=colour), pareto

    def picture_text(self, puzzle: SchedulePuzzle, kept: str, width: int, colour: str = "layer") -> str:
        import drawing

        width = max(40, min(width, drawing.TEXT_WIDTH))
        return str(drawing.text(parse_trace(kept), puzzle.title, width, puzzle.goal, colour))

    def sketch(self, puzzle: SchedulePuzzle, rendered: Callable[..., str]) -> str:
        """What each rank keeps, and who talks to whom."""
        from drawing.palette import layer_colour

        if puzzle.sketch is None:
            return ""
        layers, _, ranks = puzzle.goal.size
        colours = [layer_colour(layer, layers) for layer in range(layers)]
        return rendered("overview.svg", sketch=puzzle.sketch, layers=layers, ranks=ranks, colours=colours)

    def beside_reference(self, puzzle: SchedulePuzzle, kept: str, colour: str = "layer") -> str:
        """A kept run above the reference's as SVG; empty where the reference is not installed."""
        known = reference_run(puzzle.slug) if kept else None
        if known is None or not can_be_drawn(trace := parse_trace(kept)):
            return ""
        return as_svg("drawing:draw_compare", trace, known[0], puzzle.title, goal=puzzle.goal, colour=colour)

    def draw(self, puzzle: SchedulePuzzle | FreeGame, options: DrawOptions, bench: Workbench) -> bool:
        from .draw import draw_runs  # here, since a browser draws too, and has no commands

        return draw_runs(puzzle, options, bench)

    def require_runnable(self, puzzle: SchedulePuzzle | FreeGame, options: TensorOptions) -> None:
        if options.output:
            from drawing import require_ending

            require_ending(options.output, of_a_run=False)

    def run_on_tensors(self, puzzle: SchedulePuzzle | FreeGame, options: TensorOptions, bench: Workbench) -> bool:
        from .run_on_tensors import replay_run, run_freely  # here, since it takes rich and numpy

        if not isinstance(puzzle, SchedulePuzzle):
            return run_freely(puzzle, options, bench)
        return bench.grade() if options.tensors is False else replay_run(puzzle, options, bench)


def timeline(trace: Trace, title: str, judged: bool = True, colour: str = "layer") -> str:
    """The run as SVG; empty where nothing happened, or it cannot be drawn."""
    if not can_be_drawn(trace):
        return ""
    return as_svg("drawing:draw", trace, title, judged=judged, colour=colour)


def can_be_drawn(trace: Trace) -> bool:
    """True if something happened in a trace and it has no numbers that a picture could choke on; it may be forged."""
    shape = (trace.size.layers, trace.size.batches, len(trace.ranks))
    has_events = any(trace.events(rank) for rank in range(len(trace.ranks)))
    return (
        has_events
        and max(shape) <= MAX_SIZE
        and all(
            len(ops) <= MAX_OPERATIONS
            and all(
                op.end <= MAX_TICKS and (op.layer or 0) < MAX_SIZE and max(op.batches, default=0) < MAX_SIZE
                for op in ops
            )
            for ops in trace.ranks
        )
    )
