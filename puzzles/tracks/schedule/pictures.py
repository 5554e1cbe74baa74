"""Draws a schedule's kept run for reports, notebooks and `watch`: as a timeline, among the records, and as text."""

from collections.abc import Mapping

from lib import Trace, referee
from puzzles.catalog.schedule import SchedulePuzzle
from puzzles.tracks.later import as_svg

from .score import MAX_OPERATIONS, parse_trace

MAX_SIZE, MAX_TICKS = 256, 100_000
"""Layers, batches and ranks; ticks. Of a forged trace that failed, nothing larger is drawn."""


def timeline(trace: Trace, title: str, judged: bool = True, colour: str = "layer") -> str:
    """The run as SVG; empty where nothing happened, or it cannot be drawn."""
    if not can_be_drawn(trace):
        return ""
    return as_svg("drawing:draw", trace, title, judged=judged, colour=colour)


def picture(puzzle: SchedulePuzzle, kept: str, judged: bool = True, colour: str = "layer") -> str:
    """A kept run as SVG; empty if there is none."""
    return timeline(parse_trace(kept), puzzle.title, judged, colour) if kept else ""


def pictures(puzzle: SchedulePuzzle, kept: str, figures: Mapping[str, float], colour: str = "layer") -> tuple[str, str]:
    """The same, and a run that was correct among the records of its puzzle."""
    mine = [("yours", referee(parse_trace(kept)))] if figures else []
    pareto = as_svg("drawing:draw_pareto", puzzle.goal, mine, puzzle.title) if mine else ""
    return picture(puzzle, kept, colour=colour), pareto


def picture_text(puzzle: SchedulePuzzle, kept: str, width: int, colour: str = "layer") -> str:
    import drawing

    width = max(40, min(width, drawing.TEXT_WIDTH))
    return str(drawing.text(parse_trace(kept), puzzle.title, width, puzzle.goal, colour))


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
