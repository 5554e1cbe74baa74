"""What a teacher writes for a course: `course.toml`, and comments on submissions in a CSV file or a folder."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any

from puzzles.catalog.fields import Fields
from puzzles.custom import COURSE_FILE, puzzle_files
from puzzles.failure import sanitized
from puzzles.tracks import UnknownPuzzleError, find

from .handed_in import Submitted
from .points import Late, late_from
from .roster import CourseError, cells, folded, name_forms, rows_of

Comment = tuple[str, str]
"""The puzzle that it is on, or nothing, and its text as Markdown."""


class Comments:
    """Comments by the words that identify a student."""

    def __init__(self, by_word: Mapping[str, list[Comment]]) -> None:
        self._by_word = by_word

    def on(self, submitted: Submitted) -> list[Comment]:
        return [comment for word in _words(submitted) for comment in self._by_word.get(word, ())]

    def unknown(self, submitted: Iterable[Submitted]) -> list[str]:
        """The words that match no student, or several."""
        words = [word for one in submitted for word in _words(one)]
        return [word for word in self._by_word if words.count(word) != 1]


def read_comments(path: Path) -> Comments:
    """The comments in a CSV file with the columns `name`, `id` or `email`, `comment` and perhaps `puzzle`; or in files
    of a folder, each named after a student: ann.md.
    """
    found: dict[str, list[Comment]] = {}
    if path.is_dir():
        for file in sorted(path.glob("*.md")):
            try:
                found.setdefault(folded(file.stem), []).append(("", file.read_text(encoding="utf-8-sig")))
            except (OSError, UnicodeDecodeError) as why:
                raise CourseError(f"{file}: {getattr(why, 'strerror', None) or why}") from None
        return Comments(found)
    for number, row in enumerate(rows_of(path), 2):
        texts = cells(row, "comment")
        who = [*cells(row, "id"), *cells(row, "email"), *cells(row, "others"), *cells(row, "name")]
        if texts and who:
            slug = _slug(" ".join(cells(row, "puzzle")), f"{path}, line {number}")
            found.setdefault(folded(who[0]), []).append((slug, texts[0]))
        elif texts:
            raise CourseError(f"{path}, line {number}: it does not say whom the comment is for")
    return Comments(found)


def _slug(name: str, where: str) -> str:
    try:
        return name and find(name).slug
    except UnknownPuzzleError as why:
        raise CourseError(f"{where}: {sanitized(str(why))}") from None


def _words(submitted: Submitted) -> list[str]:
    """The names of a submission, each once: identifiers, names, and its name in the class."""
    people = (submitted.student, *submitted.student.members)
    words = [folded(word) for who in people for word in who.identifiers]
    words += [form for who in people for form in sorted(name_forms(who.name))]
    return list(dict.fromkeys([*words, folded(Path(submitted.key).stem), folded(submitted.key)]))


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
    options["assignment"] = fields.text("assignment", "")
    options["strict"] = fields.flag("strict") or None
    options["roster"] = (roster := fields.text("roster", "")) and folder / roster
    options["comments"] = (comments := fields.text("comments", "")) and folder / comments
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
