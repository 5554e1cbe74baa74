"""What a teacher writes for a class: `course.toml`, with submissions, points, roster, puzzles, lateness and reports.

The command line has none of it: a class is graded many times by the same rules, which belong into a file that is kept.
An earlier version had an option for each rule, and a file that stood in for the options.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from puzzles.catalog.fields import Fields
from puzzles.custom import COURSE_FILE, puzzle_files
from puzzles.judge.verdict import NOTHING_STATED, Scoring
from puzzles.teaching.points import Late, late_from, points_from

from .roster import CourseError

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


NO_COURSE = Course()
"""What `puzzles grade` goes by."""


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
