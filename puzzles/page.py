"""The report as one self-contained HTML page. Everything goes through a template that escapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lib import Trace, trace_from_json

from .afterwards import story
from .catalog import PUZZLES, Puzzle
from .grader import MOST_OPERATIONS
from .inside.failure import plain
from .pareto import pareto
from .sandbox import Tier
from .verdict import Graded, Verdict


def page(graded: Sequence[Graded], tier: Tier) -> str:
    """The page: a table, and for each attempt its verdict, message, timeline, and place among the known schedules."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("puzzles"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    files = [
        {
            "path": plain(file.path),
            "verdicts": file.verdicts,
            "attempts": [_attempt(v, PUZZLES[v.puzzle], Markup) for v in file.verdicts if v.attempted or v.message],
        }
        for file in graded
    ]
    slugs = [v.puzzle for v in graded[0].verdicts] if graded else []
    return environment.get_template("report.html").render(
        files=files,
        slugs=slugs,
        stars="★★★",
        no_stars="☆☆☆",
        tier=tier,
        pictures=any(v.trace for f in graded for v in f.verdicts),
    )


def _attempt(verdict: Verdict, puzzle: Puzzle, markup: Any) -> dict[str, Any]:
    correct = verdict.timesteps is not None
    return {
        "verdict": verdict,
        "puzzle": puzzle,
        "story": story(verdict, puzzle) if verdict.status == "passed" else [],
        "timeline": markup(timeline(trace_from_json(verdict.trace), puzzle.title)) if verdict.trace else "",
        "pareto": markup(pareto(puzzle, verdict)) if correct else "",
    }


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
