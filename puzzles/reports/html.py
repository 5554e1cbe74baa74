"""The report as one self-contained HTML page. Everything goes through a template that escapes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

from lib import Trace, referee, trace_from_json
from puzzles.catalog.schedule import Puzzle
from puzzles.failure import Failure, plain
from puzzles.grading.verdict import Graded, Verdict
from puzzles.sandbox.tiers import Tier
from puzzles.tracks import SCHEDULES, track_of
from puzzles.tracks.schedule.track import MOST_OPERATIONS

from .feedback import story
from .terminal import slugs_of


def page(graded: Sequence[Graded], tier: Tier) -> str:
    """The page: a table, and for each attempt its verdict, message, timeline, and place among the known schedules."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("puzzles.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    files = [
        {
            "path": plain(file.path),
            "verdicts": {v.puzzle: v for v in file.verdicts},
            "attempts": [_attempt(v, Markup) for v in file.verdicts if v.attempted or v.message],
        }
        for file in graded
    ]
    return environment.get_template("report.html").render(
        files=files,
        slugs=slugs_of(graded),
        stars="★★★",
        no_stars="☆☆☆",
        tier=tier,
        pictures=any(v.trace for f in graded for v in f.verdicts),
    )


def _attempt(verdict: Verdict, markup: Any) -> dict[str, Any]:
    track = track_of(verdict.puzzle)
    puzzle = track.puzzle(verdict.puzzle)
    return {
        "verdict": verdict,
        "heading": track.heading(puzzle),
        "figures": track.figures_text(puzzle, verdict.figures) if verdict.figures else "",
        "story": story(verdict, puzzle) if verdict.status == "passed" else [],
        "pictures": [markup(picture) for picture in pictures(verdict) if picture],
    }


def pictures(verdict: Verdict) -> list[str]:
    """What there is to see of a verdict that has what was judged, as SVG: a schedule's timeline, and its place among
    the known ones; a layout's plan."""
    if not verdict.trace:
        return []
    puzzle = track_of(verdict.puzzle).puzzle(verdict.puzzle)
    with redirect_stdout(StringIO()):  # `draw` tells the figures as well, as it always did
        if verdict.track != SCHEDULES.name:
            return [plan(verdict, puzzle)]
        trace = trace_from_json(verdict.trace)
        return [timeline(trace, puzzle.title), pareto(trace, puzzle) if verdict.figures else ""]


def pareto(trace: Trace, puzzle: Puzzle) -> str:
    """A schedule among the records of its puzzle, as SVG; empty where drawing is not installed."""
    try:
        import drawing

        return str(
            drawing.svg(drawing.draw_pareto(puzzle.goal, [drawing.Attempt("yours", referee(trace))], puzzle.title))
        )
    except Exception:  # as below
        return ""


def plan(verdict: Verdict, puzzle: Any) -> str:
    """The completed plan of a layout, as SVG; empty where there is none."""
    from puzzles.tracks.layout.judge import plan_of

    try:
        import drawing
        from drawing.layouts.graph import draw_plan

        found = plan_of(puzzle, verdict.trace)
        return "" if isinstance(found, Failure) else str(drawing.svg(draw_plan(found, puzzle.title)))
    except Exception:  # as below
        return ""


def timeline(trace: Trace, title: str) -> str:
    """The picture of a run as SVG; empty where drawing is not installed, or nothing happened."""
    if not any(trace.ranks) or not _plausible(trace):
        return ""
    try:
        import drawing

        return str(drawing.svg(drawing.draw(trace, title=title)))
    except Exception:  # a picture is never worth the report; a trace that failed may be one that cannot be drawn
        return ""


def _plausible(trace: Trace) -> bool:
    """Whether a trace, which may be a forged one that failed, has no numbers that a picture could choke on."""
    size = trace.size
    return max(size) <= MOST and all(
        len(ops) <= MOST_OPERATIONS
        and all(op.end <= LATEST and (op.layer or 0) < MOST and max(op.batches, default=0) < MOST for op in ops)
        for ops in trace.ranks
    )


MOST, LATEST = 256, 100_000
"""Layers, batches and ranks; ticks."""
