"""Attempts as a page shows them: figures, message, code, advice and pictures; attempts with one message are one."""

from collections.abc import Sequence
from typing import Any

from puzzles.grading.verdict import Verdict
from puzzles.tracks import track_of

from .feedback import achieved


def attempts(verdicts: Sequence[Verdict], colour: str = "layer") -> list[dict[str, Any]]:
    """The attempts in their order. Those that failed with the same message at the same line, such as a syntax error,
    are one, which names all their puzzles. `colour` is what the colours of operations show in the pictures."""
    found: dict[object, dict[str, Any]] = {}
    for v in sorted(verdicts, key=lambda v: not v.attempted):
        same = v.puzzle if v.figures else (v.message, v.source, v.line)
        if same not in found and (v.attempted or v.message):
            found[same] = _attempt(v, colour)
        elif v.attempted:
            found[same]["also"].append(named(v.puzzle))
    return list(found.values())


def _attempt(v: Verdict, colour: str) -> dict[str, Any]:
    track = track_of(v.puzzle)
    puzzle = track.puzzle(v.puzzle)
    passed = v.status == "passed"
    compared = " ".join(track.comparison(puzzle, v.figures, v.trace)) if passed else ""
    return {
        "verdict": v,
        "named": named(v.puzzle),
        "also": [],
        "measures": track.measures(puzzle, v.figures) if v.figures else (),
        "story": [*filter(None, (achieved(v), compared))] if passed else [],
        "hint": "" if passed or not puzzle.hints else puzzle.hints[0],
        "pictures": pictures(v, colour),
    }


def named(slug: str) -> tuple[str, str]:
    """A puzzle's slug and heading."""
    track = track_of(slug)
    return slug, track.heading(track.puzzle(slug))


def pictures(verdict: Verdict, colour: str) -> list[str]:
    """Pictures of a verdict that has its run, as SVG."""
    if not verdict.trace:
        return []
    track = track_of(verdict.puzzle)
    puzzle = track.puzzle(verdict.puzzle)
    drawn = track.pictures(puzzle, verdict.trace, verdict.figures, colour)
    return [picture for picture in drawn if picture]
