"""Gradescope's results file: points for each puzzle, with partial credit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from puzzles.grading.verdict import Graded, Verdict
from puzzles.tracks import ALL, UnknownPuzzleError, find_several, track_of


def parse_points(text: str) -> dict[str, float]:
    """'fsdp=10,engine=5' as points by puzzle; a track or chapter stands for each of its puzzles. All others have one.

    Raises:
        click.UsageError: a puzzle does not exist, or the points are not a number.
    """
    points = dict.fromkeys(ALL, 1.0)
    for pair in filter(None, text.split(",")):
        name, _, number = pair.partition("=")
        try:
            worth = float(number)
            if not 0 <= worth <= 10**6:
                raise ValueError
            points |= dict.fromkeys(find_several(name), worth)
        except ValueError:
            raise click.UsageError(f"--points takes pairs like fsdp=10,gpipe=5; got '{pair}'") from None
        except UnknownPuzzleError as why:
            raise click.UsageError(f"--points: {why}") from None
    return points


def gradescope(graded: Sequence[Graded], points: Mapping[str, float], partial: float) -> dict[str, Any]:
    """Gradescope's results of one student: of several files, the best for each puzzle counts."""

    def rank(v: Verdict) -> tuple[float, int, bool]:
        return share(v, partial), v.stars, v.attempted

    tests: list[dict[str, Any]] = []
    asked = {v.puzzle for file in graded for v in file.verdicts}
    for slug in (slug for slug in ALL if slug in asked):
        found = [v for file in graded for v in file.verdicts if v.puzzle == slug]
        best = max(found, key=rank)
        output = "\n".join(filter(None, (best.message, best.source and f"> {best.source}", *best.notes)))
        tests.append(
            {
                "name": _name(slug),
                "score": round(points[slug] * share(best, partial), 4),
                "max_score": points[slug],
                "status": "passed" if best.status == "passed" else "failed",
                "output": output or best.status.replace("_", " "),
                "tags": [slug, f"stars: {best.stars}"],
            }
        )
    return {"score": round(sum(test["score"] for test in tests), 4), "tests": tests}


def _name(slug: str) -> str:
    track = track_of(slug)
    return track.listed_as(track.puzzle(slug))


def share(verdict: Verdict, partial: float) -> float:
    """The share of a puzzle's points that a verdict is worth."""
    return {"passed": 1.0, "over_target": partial}.get(verdict.status, 0.0)
