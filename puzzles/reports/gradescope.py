"""Gradescope's results file: points for each puzzle, what there is to say about it as HTML, and a leaderboard.

The format is described in https://gradescope-autograders.readthedocs.io/en/latest/specs/.
"""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import click

from puzzles.course.points import Scoring
from puzzles.grading.judge import SHOWN_SIZE_ONLY
from puzzles.grading.verdict import Graded, Verdict
from puzzles.tracks import UnknownPuzzleError, find_several, track_of

from .html import attempts, rendered

VISIBILITIES = ("visible", "hidden", "after_due_date", "after_published")
OTHER_SIZES = "other-sizes"
OPTION = re.compile(r"[,;:] [^,;:.]*\B--\w[^;.]*")
"""The part of a sentence that advises an option of the command line."""


@dataclass(frozen=True)
class Visibility:
    """When a student sees results; of some puzzles another time. With `other_sizes`, each puzzle has a second test for
    what works only at the shown size, which is seen then."""

    usual: str = "visible"
    of: Mapping[str, str] = field(default_factory=dict)
    other_sizes: str = ""


def parse_visibility(text: str) -> Visibility:
    """'after_due_date,fsdp=hidden,other-sizes=hidden' as a rule."""
    usual, of, other_sizes = "visible", dict[str, str](), ""
    for part in text.split(","):
        name, is_pair, when = part.partition("=") if "=" in part else ("", "", part)
        if when not in VISIBILITIES:
            raise click.UsageError(f"--visibility: there is no '{when}'; there are {', '.join(VISIBILITIES)}")
        if not is_pair:
            usual = when
        elif name == OTHER_SIZES:
            other_sizes = when
        else:
            try:
                of |= dict.fromkeys(find_several(name), when)
            except UnknownPuzzleError as why:
                raise click.UsageError(f"--visibility: {why}") from None
    return Visibility(usual, of, other_sizes)


@dataclass(frozen=True)
class StudentTest:
    """A test with its points; `verdict` is what a student may read of it."""

    name: str
    verdict: Verdict
    score: float
    most: float
    visibility: str
    passed: bool


def student_tests(graded: Graded, scoring: Scoring, visibility: Visibility) -> Iterator[StudentTest]:
    """The tests of a submission: one for each puzzle, or two."""
    for given in graded.verdicts:
        verdict, slug = _readable(given), given.puzzle
        name = track_of(slug).listed_as(track_of(slug).puzzle(slug))
        when, passed = visibility.of.get(slug, visibility.usual), verdict.status == "passed"
        score, most = scoring.score(graded, verdict), scoring.most(slug)
        if not visibility.other_sizes:
            yield StudentTest(name, verdict, score, most, when, passed)
            continue
        shown = scoring.shown_size
        full = scoring.score(graded, replace(verdict, shown_size_only=False, stars=min(verdict.stars, 2)))
        yield StudentTest(name, _without_note(verdict), round(full * shown, 4), most * shown, when, passed)
        rest, works = round(score - round(full * shown, 4), 4), verdict.status in ("passed", "over_target")
        hidden = replace(verdict, trace="", notes=tuple(note for note in verdict.notes if _is_note(note)))
        yield StudentTest(
            f"{name}, at other sizes", hidden, rest, most * (1 - shown), visibility.other_sizes,
            works and not verdict.shown_size_only,
        )  # fmt: skip


def _readable(verdict: Verdict) -> Verdict:
    """A verdict without advice on options, which the students of an autograder do not have."""

    def cut(text: str) -> str:
        return OPTION.sub("", text)

    return replace(
        verdict, message=cut(verdict.message), advice=cut(verdict.advice), notes=tuple(map(cut, verdict.notes))
    )


def _without_note(verdict: Verdict) -> Verdict:
    notes = tuple(note for note in verdict.notes if not _is_note(note))
    return replace(verdict, notes=notes, shown_size_only=False)


def _is_note(note: str) -> bool:
    return note.startswith(SHOWN_SIZE_ONLY)


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
    content = {"measures": (), "story": (), "missing": missing, **attempt, "images": images}
    return rendered("gradescope_test.html", **content).strip()


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


def prairielearn(graded: Graded, scoring: Scoring) -> dict[str, Any]:
    """The results of a submission for PrairieLearn: a score from 0 to 1, and tests with their points."""
    tests = [*student_tests(graded, scoring, Visibility())]
    most = sum(test.most for test in tests)
    return {
        "gradable": bool(graded.attempted) or not any(v.message for v in graded.verdicts),
        "score": round(min(1.0, sum(test.score for test in tests) / most), 4) if most else 0.0,
        "message": next((v.message for v in graded.verdicts if not graded.attempted and v.message), ""),
        "tests": [
            {
                "name": test.name,
                "description": test.verdict.puzzle,
                "points": test.score,
                "max_points": test.most,
                "message": test.verdict.message,
                "output": "\n".join((*test.verdict.notes, *test.verdict.printed)),
            }
            for test in tests
        ],
    }


def classroom(graded: Graded, scoring: Scoring) -> dict[str, Any]:
    """The results of a submission for GitHub Classroom's reporter."""
    tests = [*student_tests(graded, scoring, Visibility())]
    return {
        "version": 1,
        "status": "pass" if all(test.passed for test in tests) else "fail",
        "max_score": sum(test.most for test in tests),
        "tests": [_classroom_test(test) for test in tests],
    }


def _classroom_test(test: StudentTest) -> dict[str, Any]:
    v = test.verdict
    return {
        "name": test.name,
        "status": "pass" if test.passed else "fail",
        "score": test.score,
        "message": "\n".join(filter(None, (v.message, *v.notes))),
        "test_code": v.puzzle,
        "filename": v.found_in,
        "line_no": v.line,
        "execution_time": 0,
    }
