"""Report as one self-contained HTML page. The template escapes everything."""

from collections.abc import Sequence
from typing import Any

from puzzles.course.points import NOTHING_STATED, Scoring
from puzzles.failure import sanitized
from puzzles.grading.verdict import Graded, Verdict
from puzzles.sandbox.tiers import IsolationTier
from puzzles.tracks import track_of
from puzzles.tracks.outcomes import stars_text

from .attempts import pictures
from .environment import environment
from .feedback import details, story
from .standings import points_text, shown_size_mark, slugs_of


def report_page(
    graded: Sequence[Graded],
    tier: IsolationTier,
    colour: str = "layer",
    scoring: Scoring = NOTHING_STATED,
) -> str:
    """The page: a table, and for each attempt its verdict, message and pictures, in which colours show a `colour`."""
    files = [
        {
            "path": file.name or sanitized(file.path),
            "points": points_text(file, scoring) if scoring.is_stated else "",
            "verdicts": {v.puzzle: v for v in file.verdicts},
            "attempts": [_attempt(v, colour) for v in file.verdicts if v.attempted or v.message],
        }
        for file in graded
    ]
    return str(
        environment()
        .get_template("report.html")
        .render(
            files=files,
            slugs=slugs_of(graded),
            stars=stars_text,
            mark=shown_size_mark,
            tier=tier,
            marked=next((m for f in graded for v in f.verdicts if (m := shown_size_mark(v))), ""),
            left_out=any(_is_left_out(v) for f in graded for v in f.verdicts),
        )
    )


def _attempt(verdict: Verdict, colour: str) -> dict[str, Any]:
    track = track_of(verdict.puzzle)
    puzzle = track.puzzle(verdict.puzzle)
    return {
        "verdict": verdict,
        "heading": track.heading(puzzle),
        "figures": track.figures_text(puzzle, verdict.figures) if verdict.figures else "",
        "story": [*story(verdict), *details(verdict)] if verdict.status == "passed" else [],
        "pictures": pictures(verdict, colour),
    }


def _is_left_out(verdict: Verdict) -> bool:
    """True if there could be a picture, but the run was not kept."""
    return bool(verdict.figures) and not verdict.trace and track_of(verdict.puzzle).has_pictures
