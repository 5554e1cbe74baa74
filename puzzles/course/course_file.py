"""What a teacher writes for a course: `course.toml`, with points, the roster, the puzzles and what is late."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any

from puzzles.catalog.fields import Fields
from puzzles.custom import COURSE_FILE, puzzle_files

from .points import Late, late_from
from .roster import CourseError


@dataclass(frozen=True)
class Course:
    """A course: folders of puzzles, and options of `puzzles grade` by their names."""

    puzzles: tuple[Path, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    late: Late | None = None


def read_course(path: Path) -> Course:
    """The course in a file, or in a folder's `course.toml`."""
    file = path / COURSE_FILE if path.is_dir() else path
    try:
        return _course(file, tomllib.loads(file.read_text(encoding="utf-8-sig")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as why:
        raise CourseError(f"{file}: {getattr(why, 'strerror', None) or why}") from None


def _course(file: Path, given: Mapping[str, Any]) -> Course:
    fields, folder = Fields(str(file), given), file.parent
    options: dict[str, Any] = {}
    if points := fields.table("points", {}).rest():
        options["points"] = ",".join(f"{slug}={worth}" for slug, worth in points.items())
    for name, most in (("partial", 1.0), ("shown_size", 1.0), ("third_star", 10.0**6)):
        options[name] = _number(fields, name, most)
    options["strict"] = fields.flag("strict") or None
    options["roster"] = (roster := fields.text("roster", "")) and folder / roster
    rule = fields.table("late", {}).rest()
    late = _late(rule, str(file), folder) if rule else None
    default = [str(Path())] if puzzle_files(folder) else []
    folders = tuple(folder / name for name in (fields.texts("puzzles") or default))
    fields.done()
    return Course(folders, {name: value for name, value in options.items() if value not in (None, "")}, late)


def _number(fields: Fields, name: str, most: float) -> float | None:
    def is_right(given: Any) -> bool:
        return type(given) in (int, float) and 0 <= given <= most

    number: float | None = fields.take(name, f"a number from 0 to {most:,g}", is_right, None)
    return number


def _late(given: Mapping[str, Any], where: str, folder: Path) -> Late:
    """Dates are as TOML writes them, or texts."""
    return late_from(
        {name.replace("_", "-"): _text(value) for name, value in given.items()}, f"{where}, [late]", folder
    )


def _text(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime | date) else str(value)
