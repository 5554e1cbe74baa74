"""Gradescope's results file: points for each puzzle, what there is to say about it as HTML, and a leaderboard.

The format is that of https://gradescope-autograders.readthedocs.io/en/latest/specs/.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import click

from puzzles.grading.verdict import Graded, Verdict
from puzzles.tracks import ALL, UnknownPuzzleError, find_group, find_several, track_of

from .attempts import attempts
from .environment import environment


def parse_points(text: str) -> dict[str, float]:
    """'fsdp=10,engine=5' as points by puzzle; a track or chapter stands for each of its puzzles. All others have one.
    In any order, what names a puzzle counts, then what names the fewest puzzles.

    Raises:
        click.UsageError: a puzzle does not exist, the points are not a number, or two pairs contradict each other.
    """
    found: dict[str, list[tuple[bool, int, float, str]]] = {}
    for pair in filter(None, text.split(",")):
        name, _, number = pair.partition("=")
        try:
            worth = float(number)
            if not 0 <= worth <= 10**6:
                raise ValueError
            is_group, slugs = find_group(name) is not None, find_several(name)
            for slug in slugs:
                found.setdefault(slug, []).append((is_group, len(slugs), worth, pair))
        except ValueError:
            raise click.UsageError(f"--points takes pairs like fsdp=10,gpipe=5; got '{pair}'") from None
        except UnknownPuzzleError as why:
            raise click.UsageError(f"--points: {why}") from None
    points = dict.fromkeys(ALL, 1.0)
    for slug, given in found.items():
        first = min(given, key=lambda one: one[:2])
        for other in given:
            if other[:2] == first[:2] and other[2] != first[2]:
                raise click.UsageError(f"--points says both {first[3]} and {other[3]} of {slug}; keep one of them")
        points[slug] = first[2]
    return points


def gradescope(
    graded: Sequence[Graded], points: Mapping[str, float], partial: float, visibility: str = "visible"
) -> dict[str, Any]:
    """Gradescope's results of one student: of several files, the best for each puzzle counts."""

    def rank(v: Verdict) -> tuple[float, int, bool]:
        return share(v, partial), v.stars, v.attempted

    tests: list[dict[str, Any]] = []
    counted: list[Verdict] = []
    asked = {v.puzzle for file in graded for v in file.verdicts}
    for slug in (slug for slug in ALL if slug in asked):
        found = [v for file in graded for v in file.verdicts if v.puzzle == slug]
        best = max(found, key=rank)
        tests.append(
            {
                "name": _name(slug),
                "score": round(points[slug] * share(best, partial), 4),
                "max_score": points[slug],
                "status": "passed" if best.status == "passed" else "failed",
                "output": _html(best),
                "output_format": "html",
                "tags": [slug, f"stars: {best.stars}"],
                "visibility": visibility,
            }
        )
        counted.append(best)
    return {
        "score": round(sum(test["score"] for test in tests), 4),
        "visibility": visibility,
        "stdout_visibility": "hidden",
        "tests": tests,
        "leaderboard": _leaderboard(counted),
    }


def _html(verdict: Verdict) -> str:
    """A verdict as HTML. Pictures are images, in which no script runs, since the page is Gradescope's."""
    (attempt,) = attempts([verdict]) or [{"verdict": verdict}]
    missing = track_of(verdict.puzzle).signature(verdict.puzzle)
    images = [base64.b64encode(picture.encode()).decode() for picture in attempt.get("pictures", ())]
    template = environment().get_template("gradescope_test.html")
    return str(template.render({"measures": (), "story": (), "missing": missing, **attempt, "images": images})).strip()


def _leaderboard(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """The stars, and of each schedule that passed its steps, its peak and its traffic."""
    rows: list[dict[str, Any]] = [{"name": "stars", "value": sum(v.stars for v in verdicts)}]
    for v in verdicts:
        name = f"{v.puzzle} " if len(verdicts) > 1 else ""
        for figure, words in LEADERBOARD.items():
            if figure in v.figures and v.status == "passed":
                rows.append({"name": f"{name}{words}", "value": v.figures[figure], "order": "asc"})
    return rows


LEADERBOARD = {"timesteps": "timesteps", "peak_memory": "peak", "traffic": "traffic"}
"""Figures of a leaderboard, and what their columns are called; less is better."""


def _name(slug: str) -> str:
    track = track_of(slug)
    return track.listed_as(track.puzzle(slug))


def share(verdict: Verdict, partial: float) -> float:
    """The share of a puzzle's points that a verdict is worth."""
    return {"passed": 1.0, "over_target": partial}.get(verdict.status, 0.0)
