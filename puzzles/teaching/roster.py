"""Reads a roster, a CSV file with a row for each student or Canvas's export, and finds its students in submissions.

A submission belongs to a student if an identifier or a group says so; a name alone does only if nobody else has it. A
number matches nobody of another name, because systems number people in different ways. Where several students may be
meant, none gets the work: it is listed by itself, with a warning that says what to add. Students who handed in nothing
are on the list too. Grading and lateness are not decided here.

Names are compared without case, marks and spaces, with the last name first or last, as platforms write them.
"""

import csv
import io
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from os.path import join
from pathlib import Path
from typing import NamedTuple

from puzzles.catalog.fields import OwnPuzzleError
from puzzles.failure import sanitized
from puzzles.judge.handed_in import Submitted, distinct, tellers
from puzzles.judge.submission import shared_folder
from puzzles.judge.verdict import Student

HEADINGS = {
    "name": ("name", "student", "full name", "student name"),
    "first": ("first name", "given name"),
    "last": ("last name", "surname", "family name"),
    "id": ("id", "student id", "sid", "id number"),
    "email": ("e-mail", "email", "email address", "e-mail address", "mail"),
    "section": ("section", "sections"),
    "group": ("group", "group name", "team", "groups"),
    "submitted": ("submitted", "submitted at", "submission time", "handed in"),
    "due": ("due", "due at", "extension", "extended to"),
    "others": (
        *("identifier", "sis user id", "sis login id", "username", "user name", "login", "github username", "github"),
    ),
}
"""Columns by what they hold; upper case, spaces and hyphens do not count."""


class CourseError(OwnPuzzleError):
    """A file of a course that cannot be used; the text names it, the line, and what to do."""


def read_roster(path: Path) -> list[Student]:
    found: list[Student] = []
    lines: dict[str, int] = {}
    for number, row in enumerate(rows_of(path), 2):
        student = _student(row)
        of_canvas = cells(row, "name")[:1] in (["Points Possible"], ["Student, Test"])
        if of_canvas or not (student.name or student.identifiers):
            continue
        for one in filter(folded, student.identifiers):
            if (first := lines.setdefault(folded(one), number)) != number:
                raise CourseError(f"{path}: lines {first} and {number} both have '{sanitized(one)}'; give each its own")
        found.append(student)
    return found


def rows_of(path: Path) -> list[dict[str, str]]:
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
    """The values of a kind in a row, from all columns of that kind."""
    words = [folded(word) for word in HEADINGS[kind]]
    return [value for heading, value in row.items() if value and folded(heading) in words]


def folded(text: str) -> str:
    """A text without case, spaces and marks, to compare names and identifiers."""
    return "".join(c for c in unicodedata.normalize("NFKC", text).casefold() if c.isalnum())


def moment(text: str) -> float | None:
    """A date and time as platforms write it, in seconds since 1970; else None. Without a zone it is local."""
    words = re.sub(r" ?UTC$", "+00:00", text.strip()).replace(" +", "+").replace(" -", "-")
    try:
        return datetime.fromisoformat(words).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


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
    )


def shown_name(name: str) -> str:
    """'Lee, Ann' as 'Ann Lee'."""
    last, comma, first = name.partition(",")
    return f"{first.strip()} {last.strip()}" if comma and "," not in first else name.strip()


Unit = int
"""The place of a student or a group in the order of the roster."""


class Roll(NamedTuple):
    """Submissions with those who handed them in, then the students who have handed in nothing; and what is doubtful."""

    submitted: list[Submitted]
    warnings: list[str]


def call(submitted: Sequence[Submitted], roster: Sequence[Student]) -> Roll:
    """Finds the students of a roster in submissions. Several that have one student's identifiers, or are of one group,
    become one; several that only have one student's name do not."""
    units = _units(roster)
    by_id = _index(units, lambda one: map(folded, one.identifiers))
    by_name = _index(units, lambda one: name_forms(one.name))
    by_group = _index(units, lambda one: [folded(one.group)] if one.group else [])
    people = [" and ".join(one.name or one.id for one in unit.people) for unit in units]
    labels = distinct([unit.name or next(iter(unit.identifiers), "") for unit in units], *tellers(units), people)
    found: dict[Unit, list[tuple[Submitted, bool]]] = {}
    strangers: list[Submitted] = []
    doubtful: list[Submitted] = []
    warnings: list[str] = []
    for one in submitted:
        owners, is_sure = _owners_of(one, by_id, by_name, by_group)
        if len(owners) == 1:
            found.setdefault(owners.pop(), []).append((one, is_sure))
        elif owners:
            names = " or ".join(sanitized(labels[unit]) for unit in sorted(owners))
            warnings.append(f"{_shown(one)} may be from {names}; put an id in its name")
            doubtful.append(one)
        else:
            strangers.append(one)
    known: dict[Unit, Submitted] = {}
    for unit, mine in found.items():
        sure = [one for one, is_sure in mine if is_sure]
        named = [one for one, is_sure in mine if not is_sure]
        if len(named) > 1 or (named and sure):
            words = f"{' and '.join(map(_shown, [*sure, *named]))} may all be from {sanitized(labels[unit])}"
            warnings.append(f"{words}; put the id in their names, or their files in one folder")
            doubtful += named
            named = []
        if sure or named:
            known[unit] = _joined(sure or named, units[unit], labels[unit])
    warnings += [f"the roster has no student for {_shown(one)}" for one in strangers]
    folder = shared_folder([one.path for one in submitted])
    on_roster = [known.get(unit) or _missing(student, labels[unit], folder) for unit, student in enumerate(units)]
    return Roll([*on_roster, *strangers, *doubtful], warnings)


def _units(roster: Sequence[Student]) -> list[Student]:
    """Students and groups. Groups of one name in two sections are two."""
    found: dict[tuple[str, ...], list[Student]] = {}
    for number, one in enumerate(roster):
        key = (one.section, folded(one.group)) if folded(one.group) else (str(number),)
        found.setdefault(key, []).append(one)
    units = []
    for members in found.values():
        first = members[0]
        times = [one.submitted for one in members if one.submitted is not None]
        group = Student(
            first.group,
            section=first.section,
            group=first.group,
            members=tuple(members),
            submitted=max(times, default=None),
        )
        units.append(group if folded(first.group) else first)
    return units


Index = dict[str, dict[Unit, Student]]
"""By a word, the units that it identifies, each with the student who has it."""


def _index(units: Sequence[Student], words: Callable[[Student], Iterable[str]]) -> Index:
    found: Index = {}
    for number, unit in enumerate(units):
        for one in unit.people:
            for word in filter(None, words(one)):
                found.setdefault(word, {})[number] = one
    return found


def _by_id(who: Student, index: Index) -> Iterator[Mapping[Unit, Student]]:
    """The units that the identifiers of a student match. A number alone matches nobody of another name: systems number
    people in different ways."""
    for word in who.identifiers:
        rows = index.get(folded(word), {})
        forms = name_forms(who.name)
        yield {
            unit: one
            for unit, one in rows.items()
            if not (word.isdecimal() and forms and one.name and forms.isdisjoint(name_forms(one.name)))
        }


def _owners_of(one: Submitted, by_id: Index, by_name: Index, by_group: Index) -> tuple[set[Unit], bool]:
    """The units that a submission may be of; and whether an identifier or a group says so."""
    people = one.student.people
    identifiers = [row for who in people for row in _by_id(who, by_id)]
    groups = [by_group.get(folded(word), {}) for word in (one.student.name, one.student.id) if word]
    for rows in (identifiers, groups):
        if found := _units_in(rows):
            return found, True
    forms = {form for who in people for word in (who.name, who.id.replace("_", " ")) for form in name_forms(word)}
    return _units_in(by_name.get(form, {}) for form in forms), False


def _units_in(rows: Iterable[Mapping[Unit, Student]]) -> set[Unit]:
    return {unit for row in rows for unit in row}


def _joined(mine: Sequence[Submitted], unit: Student, label: str) -> Submitted:
    files = tuple(file for one in mine for file in one.files)
    path = mine[0].path if len(mine) == 1 else join(shared_folder([one.path for one in mine]), label)
    times = [one.student.submitted for one in mine if one.student.submitted is not None]
    when = unit.submitted if unit.submitted is not None else max(times, default=None)
    return Submitted(path, files, replace(unit, submitted=when), mine[0].key if len(mine) == 1 else label)


def _missing(unit: Student, label: str, folder: str) -> Submitted:
    return Submitted(join(folder, f"{label} (missing)"), (), unit, unit.id or label, is_missing=True)


def _shown(one: Submitted) -> str:
    return sanitized(one.key or one.path)
