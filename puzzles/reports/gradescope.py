"""Gradescope's results file: points for each puzzle, what there is to say about it as HTML, and a leaderboard.

The format is that of https://gradescope-autograders.readthedocs.io/en/latest/specs/.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from puzzles.course.points import Scoring
from puzzles.grading.verdict import Graded, Verdict
from puzzles.tracks import track_of

from .attempts import attempts
from .environment import environment
from .student_tests import Visibility, student_tests


def gradescope(graded: Graded, scoring: Scoring, visibility: Visibility) -> dict[str, Any]:
    """Gradescope's results of one student."""
    tests: list[dict[str, Any]] = [
        {
            "name": test.name,
            "score": test.score,
            "max_score": test.most,
            "status": "passed" if test.passed else "failed",
            "output": _html(test.verdict),
            "output_format": "html",
            "tags": _tags(test.verdict),
            "visibility": test.visibility,
        }
        for test in student_tests(graded, scoring, visibility)
    ]
    return {
        "score": round(sum(test["score"] for test in tests), 4),
        "visibility": visibility.usual,
        "stdout_visibility": "hidden",
        "tests": tests,
        "leaderboard": _leaderboard(graded.verdicts),
    }


def _tags(verdict: Verdict) -> list[str]:
    return [verdict.puzzle, f"stars: {verdict.stars}", *(["shown size only"] if verdict.shown_size_only else [])]


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
