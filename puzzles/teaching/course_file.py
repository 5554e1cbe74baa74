"""What a teacher writes for a class: `course.toml`, with submissions, points, roster, puzzles, lateness and reports.

Also what verdicts are worth by it, less what is taken off for handing in late.

The command line has none of it: a class is graded many times by the same rules, which belong into a file that is kept.
An earlier version had an option for each rule, and a file that stood in for the options. Who handed in what is decided
in `handed_in` and `roster`, and a verdict in the judge; here are only the numbers. A rule that names a puzzle counts
before one that names a chapter or a track, in any order; two that are equally specific and differ are refused, since
no order of lines decides. An extension counts only if it names one student.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Any

from puzzles.catalog.fields import Fields
from puzzles.custom import COURSE_FILE, puzzle_files
from puzzles.judge.verdict import NOTHING_STATED, Scoring, Student
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


# --- The file ---


MAX_POINTS = 1_000_000


@dataclass(frozen=True)
class Course:
    """The rules of a class. Paths are below the folder of the file."""

    file: str = ""
    submissions: tuple[Path, ...] = ()
    puzzles: tuple[Path, ...] = ()
    """Folders of puzzles."""
    points: Mapping[str, float] = field(default_factory=dict)
    """By puzzle, chapter or track."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """What the file says of `partial`, `shown_size` and `third_star`; see `Scoring`."""
    late: Late | None = None
    strict: bool = False
    """True if a solution that works only at the shown size fails."""
    roster: Path | None = None
    each_file: bool = False
    """True if every file is a submission, at any depth."""
    one_student: bool = False
    """True if all files are by one student."""
    pages: Path | None = None
    gradebook: Path | None = None

    def scoring(self) -> Scoring:
        """What the course gives for verdicts; its puzzles have been added."""
        if not (self.points or self.shares or self.late or self.strict):
            return NOTHING_STATED
        points = points_from(self.points, f"{self.file}, [points]")
        return Scoring(points, **self.shares, late=self.late, is_stated=True)


def read_course(folder: Path) -> Course:
    """The course in a folder's `course.toml`.

    Raises:
        CourseError: the file, a field, or a file that it names cannot be used; the text says which and why.
    """
    file = folder / COURSE_FILE
    try:
        return _course(file, tomllib.loads(file.read_text(encoding="utf-8-sig")))
    except FileNotFoundError:
        raise CourseError(
            f"there is no {file}; write one, if only with the line: submissions = 'submissions'"
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as why:
        raise CourseError(f"{file}: {getattr(why, 'strerror', None) or why}") from None


def _course(file: Path, given: Mapping[str, Any]) -> Course:
    fields, folder = Fields(str(file), given), file.parent

    def number(name: str, most: float) -> float | None:
        def is_right(value: Any) -> bool:
            return type(value) in (int, float) and 0 <= value <= most

        taken: float | None = fields.take(name, f"a number from 0 to {most:,}", is_right, None)
        return taken

    def path(name: str) -> Path | None:
        return folder / text if (text := fields.text(name, "")) else None

    submissions = given.get("submissions", "submissions")
    names = fields.texts("submissions") if isinstance(submissions, list) else [fields.text("submissions", submissions)]
    shares = {
        name: number(name, most) for name, most in (("partial", 1), ("shown_size", 1), ("third_star", MAX_POINTS))
    }
    late = fields.table("late", {})
    points = fields.table("points", {}).rest()
    for name, worth in points.items():
        if type(worth) not in (int, float) or not 0 <= worth <= MAX_POINTS:
            what = f"{name} is a number of points from 0 to {MAX_POINTS:,}"
            raise CourseError(f"{file}, [points]: {what}; got {worth!r}")
    default = ["."] if any(path.suffix == ".toml" for path in puzzle_files(folder)) else []  # Python may be handed in
    course = Course(
        str(file),
        tuple(folder / name for name in names),
        tuple(folder / name for name in (fields.texts("puzzles") or default)),
        points,
        {name: share for name, share in shares.items() if share is not None},
        late_from(late, folder) if late.names else None,
        fields.flag("strict"),
        path("roster"),
        fields.flag("each_file"),
        fields.flag("one_student"),
        path("pages"),
        path("gradebook"),
    )
    fields.done()
    for flag in ("each_file", "roster"):
        if course.one_student and getattr(course, flag):
            raise CourseError(f"{file}: one_student and {flag} contradict each other; keep one of them")
    return course
