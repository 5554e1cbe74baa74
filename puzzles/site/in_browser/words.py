"""A verdict as plain data for the page: words, figures, and the next move."""

from collections.abc import Mapping
from typing import Any

from puzzles.catalog.puzzle import Puzzle
from puzzles.grading.verdict import Verdict
from puzzles.reports.feedback import HEADLINES, achieved, story
from puzzles.tracks import track_of
from puzzles.tracks.outcomes import capitalized

FAILED = "Fix it, and it runs again."
BLANK = "Write your lines between the two marks. They run whenever you pause."
OVER = "The hints help, from gentle to explicit."

MEANINGS = {"timesteps": "start of the last operation"}
"""What the name of a figure does not say."""


def described(puzzle: Puzzle, verdict: Verdict) -> dict[str, Any]:
    """What the page shows of a verdict."""
    track = track_of(puzzle.slug)
    return {
        "slug": puzzle.slug,
        "status": verdict.status,
        "stars": verdict.stars,
        "headline": HEADLINES[verdict.status],
        "measures": measures_data(puzzle, verdict.figures) if verdict.figures else [],
        "message": verdict.message,
        "line": verdict.line,
        "notes": [] if verdict.status == "passed" else list(verdict.notes),
        "details": [achieved(verdict), *verdict.notes] if verdict.status == "passed" else [],
        "why": list(verdict.why),
        "why_title": capitalized(track.words.why_title),
        "why_matters": verdict.why_matters,
        "praise": puzzle.praise if verdict.stars >= 3 else "",
        "next": next_move(verdict),
    }


def measures_data(puzzle: Puzzle, figures: Mapping[str, float]) -> list[dict[str, Any]]:
    """The figures beside their targets, as plain data."""
    return [
        {
            **measure._asdict(),
            "text": measure.value_text,
            "target_text": measure.target_text,
            "meaning": MEANINGS.get(measure.figure, ""),
        }
        for measure in track_of(puzzle.slug).words.measures(puzzle, figures)
    ]


def next_move(verdict: Verdict) -> str:
    """A sentence on what to do next."""
    match verdict.status:
        case "not_attempted":
            return BLANK
        case "failed":
            return FAILED
        case "over_target":
            return " ".join(filter(None, [verdict.advice, OVER]))
    return " ".join(story(verdict))
