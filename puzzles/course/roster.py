"""Reads a roster: a CSV file with a row for each student, or the gradebook that Canvas exports, as it is."""

import csv
import io
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

from puzzles.failure import sanitized
from puzzles.grading.verdict import Student

from .exports import moment

HEADINGS = {
    "name": ("name", "student", "full name", "student name"),
    "first": ("first name", "given name"),
    "last": ("last name", "surname", "family name"),
    "id": ("id", "student id", "sid", "id number"),
    "email": ("e-mail", "email", "email address", "e-mail address", "mail"),
    "section": ("section", "sections"),
    "group": ("group", "group name", "team", "groups"),
    "submitted": ("submitted", "submitted at", "submission time", "handed in"),
    "comment": ("comment", "comments", "feedback"),
    "puzzle": ("puzzle", "slug"),
    "due": ("due", "due at", "extension", "extended to"),
    "others": (
        *("identifier", "sis user id", "sis login id", "username", "user name", "login", "github username", "github"),
    ),
}
"""Columns by what they hold; upper case, spaces and hyphens do not count."""

NOT_STUDENTS = ("points possible", "student, test")
"""What Canvas writes into the column of names besides students."""


class CourseError(Exception):
    """A file of a course that cannot be used; the text names it, the line, and what to do."""


def read_roster(path: Path) -> list[Student]:
    """The students of a roster, in its order."""
    found: list[Student] = []
    lines: dict[str, int] = {}
    for number, row in enumerate(rows_of(path), 2):
        student = _student(row)
        if not (student.name or student.identifiers) or _is_none(student):
            continue
        for one in student.identifiers:
            if (first := lines.setdefault(folded(one), number)) != number:
                raise CourseError(
                    f"{path}: the lines {first} and {number} both have '{sanitized(one)}'; give each its own"
                )
        found.append(student)
    return found


def rows_of(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file by their headings."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        rows = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    except (OSError, UnicodeDecodeError, csv.Error) as why:
        raise CourseError(f"{path}: {getattr(why, 'strerror', None) or why}") from None
    headings = list(rows[0]) if rows else next(csv.reader(io.StringIO(text)), [])
    known = {word for kind in ("name", "first", "id", "email", "others") for word in map(folded, HEADINGS[kind])}
    if not known.intersection(folded(heading or "") for heading in headings):
        raise CourseError(f"{path}: no column says who a row is about; name one 'name', 'id' or 'email'")
    return [{key: (value or "").strip() for key, value in row.items() if isinstance(key, str)} for row in rows]


def cells(row: Mapping[str, str], kind: str) -> list[str]:
    """What a row holds of a kind, in all columns that have it."""
    words = [folded(word) for word in HEADINGS[kind]]
    return [value for heading, value in row.items() if value and folded(heading) in words]


def folded(text: str) -> str:
    """A text without case, spaces and marks, to compare names and identifiers."""
    return "".join(c for c in unicodedata.normalize("NFKC", text).casefold() if c.isalnum())


def name_forms(name: str) -> set[str]:
    """A name as platforms write it: with the last name first or last, with or without spaces."""
    last, comma, first = name.partition(",")
    words = [folded(word) for word in (f"{first} {last}" if comma else name).split()]
    return {"".join(words[i:] + words[:i]) for i in range(len(words))} - {""}


def _student(row: dict[str, str]) -> Student:
    first, last = cells(row, "first"), cells(row, "last")
    names: Sequence[str] = cells(row, "name") or ([" ".join([*first[:1], *last[:1]])] if first or last else [""])
    when = cells(row, "submitted")
    return Student(
        shown_name(names[0]),
        next(iter(cells(row, "id")), ""),
        next(iter(cells(row, "email")), ""),
        next(iter(cells(row, "section")), ""),
        next(iter(cells(row, "group")), ""),
        tuple(dict.fromkeys(cells(row, "others"))),
        submitted=moment(when[0]) if when else None,
        row=row,
    )


def shown_name(name: str) -> str:
    """'Lee, Ann' as 'Ann Lee'."""
    last, comma, first = name.partition(",")
    return f"{first.strip()} {last.strip()}" if comma and "," not in first else name.strip()


def _is_none(student: Student) -> bool:
    return any(" ".join(cells(student.row, "name")).casefold().startswith(word) for word in NOT_STUDENTS)
