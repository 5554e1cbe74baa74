"""Results files of two other autograders: PrairieLearn's external grader, and GitHub Classroom.

Sources: PrairieLearn's documentation of external grading (results.json), and the autograding actions of
`classroom-resources`, whose result is this JSON in base64.
"""

from __future__ import annotations

from typing import Any

from puzzles.course.points import Scoring
from puzzles.grading.verdict import Graded

from .student_tests import StudentTest, Visibility, student_tests


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
