"""Gradescope's results file: points for each puzzle, what there is to say about it as HTML, and a leaderboard.

The format is described in https://gradescope-autograders.readthedocs.io/en/latest/specs/.
"""

import base64
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from puzzles.judge.verdict import Graded, Scoring, Verdict
from puzzles.screens.html import attempts, rendered
from puzzles.tracks import track_of


def _readable(verdict: Verdict) -> Verdict:
    """A verdict without the parts of sentences that advise an option: an autograder's students have none."""
    texts = (verdict.message, verdict.advice, *verdict.notes)
    message, advice, *notes = (re.sub(r"[,;:] [^,;:.]*\B--\w[^;.]*", "", text) for text in texts)
    return replace(verdict, message=message, advice=advice, notes=tuple(notes))


def gradescope(graded: Graded, scoring: Scoring) -> dict[str, Any]:
    """Gradescope's results of one student."""
    tests = [_test(graded, _readable(verdict), scoring) for verdict in graded.verdicts]
    return {
        "score": round(sum(test["score"] for test in tests), 4),
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": tests,
        "leaderboard": _leaderboard(graded.verdicts),
    }


def _test(graded: Graded, verdict: Verdict, scoring: Scoring) -> dict[str, Any]:
    track = track_of(verdict.puzzle)
    return {
        "name": track.words.heading(track.puzzle(verdict.puzzle)),
        "score": scoring.score(graded, verdict),
        "max_score": scoring.most(verdict.puzzle),
        "status": "passed" if verdict.status == "passed" else "failed",
        "output": _html(verdict),
        "output_format": "html",
        "tags": [verdict.puzzle, f"stars: {verdict.stars}", *(["shown size only"] * verdict.shown_size_only)],
        "visibility": "visible",
    }


def _html(verdict: Verdict) -> str:
    """A verdict as HTML. Pictures are images, in which no script runs, since the page is Gradescope's."""
    (attempt,) = attempts([verdict]) or [{"verdict": verdict}]
    missing = track_of(verdict.puzzle).words.signature(verdict.puzzle)
    images = [base64.b64encode(picture.encode()).decode() for picture in attempt.get("pictures", ())]
    content = {"measures": (), "story": (), "missing": missing, **attempt, "images": images}
    return rendered("gradescope_test.html", **content).strip()


def _leaderboard(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """The stars, and of each schedule that passed its steps, its peak and its traffic."""
    rows: list[dict[str, Any]] = [{"name": "stars", "value": sum(v.stars for v in verdicts)}]
    for v in verdicts:
        name = f"{v.puzzle} " if len(verdicts) > 1 else ""
        for figure, words in {"timesteps": "timesteps", "peak_memory": "peak", "traffic": "traffic"}.items():
            if figure in v.figures and v.status == "passed":
                rows.append({"name": f"{name}{words}", "value": v.figures[figure], "order": "asc"})
    return rows
