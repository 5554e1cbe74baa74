"""A gradebook as CSV: a row for each student, with points; and the form that Canvas imports.

Canvas's form is in its guides, "Import grades": the columns that identify a student, then assignments, with a
row of the points that are possible.
"""

import csv
import io
from collections.abc import Iterator, Sequence

from puzzles.course.points import Scoring
from puzzles.grading.verdict import Graded, Student

from .standings import folder_of, name_in

WHO = ("name", "id", "email", "section", "group")
TOTALS = ("points", "max_points", "days_late", "submission")
CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
ASSIGNMENT = "Training Puzzles"


def gradebook(graded: Sequence[Graded], slugs: Sequence[str], scoring: Scoring) -> str:
    """A row for each student, with the points of each puzzle in `slugs`; each member of a group has a row."""
    rows: list[Sequence[object]] = [(*WHO, *slugs, *TOTALS)]
    most = _most(slugs, scoring)
    for one, who in _people(graded):
        points = _points(one, slugs, scoring)
        known = [harmless(getattr(who, name)) for name in WHO]
        submission = harmless(name_in(one, folder_of(graded)))
        rows.append((*known, *points, round(sum(points), 4), most, scoring.days_late(one), submission))
    return csv_text(rows)


def canvas(graded: Sequence[Graded], slugs: Sequence[str], scoring: Scoring, assignment: str = ASSIGNMENT) -> str:
    """The total of each student for an assignment. A roster that Canvas has exported gives its identifiers, and the
    full heading of the assignment, which ends with its number."""
    people = [*_people(graded)]
    headings = next((list(who.row) for _, who in people if who.row), [])
    title = next((one for one in headings if one.startswith(f"{assignment} (")), assignment)
    rows: list[Sequence[object]] = [(*CANVAS, title)]
    rows.append(("    Points Possible", *[""] * (len(CANVAS) - 1), _most(slugs, scoring)))
    for one, who in people:
        rows.append((*_canvas_cells(who), round(sum(_points(one, slugs, scoring)), 4)))
    return csv_text(rows)


def _canvas_cells(who: Student) -> list[object]:
    if CANVAS[0] in who.row:
        return [harmless(who.row[CANVAS[0]]), *(who.row.get(heading, "") for heading in CANVAS[1:])]
    login = next(iter(who.others), who.email)
    return [harmless(who.name), "", *map(harmless, (who.id, login, who.section))]


def _people(graded: Sequence[Graded]) -> Iterator[tuple[Graded, Student]]:
    return ((one, who) for one in graded for who in one.student.people)


def _points(graded: Graded, slugs: Sequence[str], scoring: Scoring) -> list[float]:
    found = {verdict.puzzle: scoring.score(graded, verdict) for verdict in graded.verdicts}
    return [found.get(slug, 0.0) for slug in slugs]


def _most(slugs: Sequence[str], scoring: Scoring) -> float:
    return sum(scoring.most(slug) for slug in slugs)


def csv_text(rows: Sequence[Sequence[object]]) -> str:
    """Rows as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def harmless(word: object) -> object:
    """A cell that no spreadsheet takes for a formula: such a one gets an apostrophe in front."""
    return f"'{word}" if str(word).startswith(("=", "+", "-", "@", "\t", "\r")) else word
