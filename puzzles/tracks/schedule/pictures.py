"""Draws a schedule's kept run for reports, notebooks and `watch`: as a timeline, among the records, and as text."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO

from lib import Trace, referee
from puzzles.catalog.schedule import SchedulePuzzle

from .score import MAX_OPERATIONS

MAX_SIZE, MAX_TICKS = 256, 100_000
"""Layers, batches and ranks; ticks. Of a forged trace that failed, nothing larger is drawn."""


def timeline(trace: Trace, title: str, judged: bool = True, colour: str = "layer") -> str:
    """The run as SVG; empty where drawing is not installed, or nothing happened."""
    if not any(trace.events(rank) for rank in range(len(trace.ranks))) or not is_plausible(trace):
        return ""
    try:
        import drawing

        with redirect_stdout(StringIO()):  # `draw` prints the figures as well, as it always did
            return str(drawing.svg(drawing.draw(trace, title=title, judged=judged, colour=colour)))
    except Exception:  # a picture that fails must not cost the report; some failed traces cannot be drawn
        return ""


def pareto(trace: Trace, puzzle: SchedulePuzzle) -> str:
    """The run among the records of its puzzle, as SVG; empty where drawing is not installed."""
    try:
        import drawing

        attempt = drawing.Attempt("yours", referee(trace))
        return str(drawing.svg(drawing.draw_pareto(puzzle.goal, [attempt], puzzle.title)))
    except Exception:  # as above
        return ""


def timeline_text(trace: Trace, puzzle: SchedulePuzzle, width: int, colour: str = "layer") -> str:
    """The run as text of a terminal's width."""
    import drawing

    return str(drawing.text(trace, puzzle.title, max(40, min(width, drawing.TEXT_WIDTH)), puzzle.goal, colour))


def is_plausible(trace: Trace) -> bool:
    """True if a trace, which may be forged, has no numbers that a picture could choke on."""
    shape = (trace.size.layers, trace.size.batches // trace.setting.replicas, len(trace.ranks))
    return max(shape) <= MAX_SIZE and all(
        len(ops) <= MAX_OPERATIONS
        and all(
            op.end <= MAX_TICKS and (op.layer or 0) < MAX_SIZE and max(op.batches, default=0) < MAX_SIZE for op in ops
        )
        for ops in trace.ranks
    )
