"""The teacher's page of solutions that several submissions have in common."""

from collections.abc import Sequence
from typing import Any

from puzzles.course.same_work import Same
from puzzles.grading.verdict import Graded

from .environment import environment
from .standings import folder_of, name_in


def same_work_page(found: Sequence[Same], graded: Sequence[Graded]) -> str:
    """The page, with the names that all reports use."""
    shared = folder_of(graded)
    rows: list[dict[str, Any]] = [
        {
            "puzzle": one.puzzle,
            "what": one.what,
            "submissions": one.submissions,
            "names": [name_in(submission, shared) for submission in one.submissions],
            "lines": one.lines,
        }
        for one in found
    ]
    return str(environment().get_template("same_work.html").render(found=rows))
