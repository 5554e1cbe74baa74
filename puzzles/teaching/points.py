"""What verdicts are worth in points, and what a course takes off for handing in late."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from math import ceil
from pathlib import Path

from puzzles.catalog.fields import Fields
from puzzles.judge.verdict import Student
from puzzles.teaching.roster import CourseError, cells, folded, moment, name_forms, rows_of, shown_name
from puzzles.tracks import ALL, UnknownPuzzleError, find_group, find_several

DAY = 86_400.0


@dataclass(frozen=True)
class Late:
    """When work is due, in seconds since 1970, and the share of the points that each day that has begun since then
    costs. `grace`: seconds after which it is late at all."""

    due: float
    per_day: float = 0.1
    grace: float = 0.0
    extensions: Mapping[str, float] = field(default_factory=dict)
    """Due times of single students, by their identifiers and names as `folded` writes them."""

    def days(self, student: Student) -> int:
        """How many days late a student is, or a group of whom one has an extension; 0 if it is not known when the work
        was handed in."""
        words = [word for who in student.people for word in _words(who)]
        due = max([self.due, *(self.extensions[word] for word in words if word in self.extensions)])
        seconds = 0.0 if student.submitted is None else student.submitted - due
        return ceil(seconds / DAY) if seconds > self.grace else 0

    def kept(self, student: Student) -> float:
        """The share of the points that a student keeps."""
        return max(0.0, 1.0 - self.per_day * self.days(student))

    def of_class(self, students: Iterable[Student]) -> tuple["Late", list[str]]:
        """The rule with the extensions that are one student's each; and the words of the others, which nobody has, or
        several students or groups."""
        owners = Counter(word for one in students for word in {word for who in one.people for word in _words(who)})
        sure = {word: due for word, due in self.extensions.items() if owners[word] == 1}
        return replace(self, extensions=sure), [word for word in self.extensions if word not in sure]


def _words(student: Student) -> set[str]:
    """The words that an extension may name a student with."""
    return {*map(folded, student.identifiers), *name_forms(student.name)}


def late_from(rule: Fields, folder: Path) -> Late:
    """The rule in a table: `due`, and perhaps `per_day`, `grace` and `extensions`, a file in `folder`."""

    def read(name: str, wanted: str, value_of: Callable[[str], float | None], default: str | None = None) -> float:
        def text(given: object) -> str:
            return given.isoformat() if isinstance(given, datetime | date) else str(given)

        optional = () if default is None else (default,)
        given = rule.take(name, wanted, lambda given: value_of(text(given)) is not None, *optional)
        return value_of(text(given)) or 0.0

    late = Late(
        read("due", "a date and time, such as 2026-11-20T18:00 or 2026-11-20T18:00+01:00", due_from),
        read("per_day", "a share, such as '10%' or 0.1", _share, "10%"),
        read("grace", "a time, such as '15m', '2h' or '1d'", _seconds, "0m"),
    )
    file = rule.text("extensions", "")
    rule.done()
    return replace(late, extensions=_extensions(folder / file)) if file else late


def due_from(text: str) -> float | None:
    """A moment, of a date alone the end of that day; None if a text is neither."""
    with suppress(ValueError, OverflowError):
        text = f"{date.fromisoformat(text) + timedelta(days=1)}T00:00"
    return moment(text)


def _share(text: str) -> float | None:
    """'10%' or '0.1'."""
    with suppress(ValueError):
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        return share if 0 <= share <= 1 else None
    return None


def _seconds(text: str) -> float | None:
    found = re.fullmatch(r"(\d{1,6})\s*([mhd])", text)
    return int(found[1]) * {"m": 60.0, "h": 3_600.0, "d": DAY}[found[2]] if found else None


def _extensions(path: Path) -> dict[str, float]:
    """Due times of single students, from a CSV file with a column `due`."""
    found: dict[str, float] = {}
    for number, row in enumerate(rows_of(path), 2):
        due = due_from(" ".join(cells(row, "due")[:1]))
        if due is None:
            raise CourseError(f"{path}, line {number}: it has no date and time in a column 'due'")
        identifiers = [*cells(row, "id"), *cells(row, "email"), *cells(row, "others")]
        names = [] if identifiers else map(shown_name, cells(row, "name"))
        found |= dict.fromkeys(map(folded, [*identifiers, *names]), due)
    return found


def points_from(worth: Mapping[str, float], where: str) -> dict[str, float]:
    """Points by puzzle; a track or chapter stands for each of its puzzles. All others have one. In any order, what
    names a puzzle counts, then what names the fewest puzzles.

    Raises:
        CourseError: nothing has a name, or two names that are equally specific give a puzzle different points.
    """
    by_slug: dict[str, list[tuple[bool, int, float, str]]] = {}
    for name, number in worth.items():
        try:
            is_group, slugs = find_group(name) is not None, find_several(name)
        except UnknownPuzzleError as why:
            raise CourseError(f"{where}: {why}") from None
        for slug in slugs:
            by_slug.setdefault(slug, []).append((is_group, len(slugs), number, f"{name} = {number:g}"))
    points = dict.fromkeys(ALL, 1.0)
    for slug, given in by_slug.items():
        first = min(given, key=lambda rule: rule[:2])
        for other in given:
            if other[:2] == first[:2] and other[2] != first[2]:
                raise CourseError(f"{where} gives both {first[3]} and {other[3]} to {slug}; keep one of them")
        points[slug] = first[2]
    return points
