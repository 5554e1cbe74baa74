"""What a course takes off for handing in late."""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, timedelta
from math import ceil
from pathlib import Path

from puzzles.grading.verdict import Student

from .exports import moment
from .roster import CourseError, cells, folded, name_forms, rows_of

DAY = 86_400.0
UNITS = {"m": 60.0, "h": 3_600.0, "d": DAY}


@dataclass(frozen=True)
class Late:
    """When work is due, in seconds since 1970, and the share of the points that each day that has begun since then
    costs. `grace`: seconds after which it is late at all."""

    due: float
    per_day: float = 0.1
    grace: float = 0.0
    extensions: Mapping[str, float] = field(default_factory=dict)
    """When it is due for some, by their identifiers and names as `folded` writes them."""

    def days(self, student: Student) -> int:
        """How many days late a student is, or a group of whom one has an extension; 0 if it is not known when the work
        was handed in."""
        due = max(map(self._due, student.people))
        seconds = 0.0 if student.submitted is None else student.submitted - due
        return ceil(seconds / DAY) if seconds > self.grace else 0

    def kept(self, student: Student) -> float:
        """The share of the points that a student keeps."""
        return max(0.0, 1.0 - self.per_day * self.days(student))

    def _due(self, student: Student) -> float:
        words = [*map(folded, student.identifiers), *sorted(name_forms(student.name))]
        return max([self.due, *(self.extensions[word] for word in words if word in self.extensions)])

    def unknown(self, students: Iterable[Student]) -> list[str]:
        """Those who have an extension and are none of the students."""
        known = {word for one in students for who in one.people for word in map(folded, who.identifiers)}
        known |= {form for one in students for who in one.people for form in name_forms(who.name)}
        return [word for word in self.extensions if word not in known]


def parse_late(text: str) -> Late:
    """'due=2026-11-20T18:00,per-day=10%,grace=15m,extensions.csv' as a rule."""
    given: dict[str, str] = {}
    for pair in filter(None, text.split(",")):
        name, is_pair, value = pair.partition("=")
        given |= {name.strip(): value.strip()} if is_pair else {"extensions": pair.strip()}
    return late_from(given, "--late", Path())


def late_from(given: Mapping[str, object], where: str, folder: Path) -> Late:
    """A rule from its parts, as texts: `due`, and perhaps `per-day`, `grace` and `extensions`, a file in `folder`."""
    known = ("due", "per-day", "grace", "extensions")
    for name in given:
        if name not in known:
            raise CourseError(f"{where}: there is no '{name}'; there are {', '.join(known)}")
    if "due" not in given:
        raise CourseError(f"{where}: say when it is due: due=2026-11-20T18:00")
    texts = {name: str(value) for name, value in given.items()}
    file = texts.get("extensions")
    return Late(
        due_from(texts["due"], where),
        share_from(texts.get("per-day", "10%"), where),
        _seconds(texts.get("grace", "0m"), where),
        _extensions(folder / file) if file else {},
    )


def due_from(text: str, where: str) -> float:
    """A moment; of a date alone, the end of that day."""
    with suppress(ValueError, OverflowError):
        text = f"{date.fromisoformat(text) + timedelta(days=1)}T00:00"
    found = moment(text)
    if found is None:
        raise CourseError(f"{where}: '{text}' is no date and time; write 2026-11-20T18:00, or 2026-11-20T18:00+01:00")
    return found


def share_from(text: str, where: str) -> float:
    """'10%' or '0.1'."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise CourseError(f"{where}: '{text}' is no share; write 10% or 0.1")
    return share


def _seconds(text: str, where: str) -> float:
    found = re.fullmatch(r"(\d{1,6})\s*([mhd])", text)
    if not found:
        raise CourseError(f"{where}: '{text}' is no time of grace; write 15m, 2h or 1d")
    return int(found[1]) * UNITS[found[2]]


def _extensions(path: Path) -> dict[str, float]:
    """When it is due for some, from a CSV file with a column `due`."""
    found: dict[str, float] = {}
    for number, row in enumerate(rows_of(path), 2):
        when = cells(row, "due")
        if not when:
            raise CourseError(f"{path}, line {number}: there is no due; write it into a column 'due'")
        identifiers = [*cells(row, "id"), *cells(row, "email"), *cells(row, "others")]
        names = [] if identifiers else [form for name in cells(row, "name") for form in name_forms(name)]
        due = due_from(when[0], f"{path}, line {number}")
        found |= dict.fromkeys([*map(folded, identifiers), *names], due)
    return found
