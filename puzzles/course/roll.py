"""Calls the roll: finds the students of a roster in submissions, so that nobody is missing."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from os.path import join
from typing import NamedTuple

from puzzles.failure import sanitized
from puzzles.grading.verdict import Student

from .handed_in import Submitted, shared_folder
from .roster import folded, name_forms

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
    found: dict[Unit, list[tuple[Submitted, bool]]] = {}
    unknown: list[Submitted] = []
    warnings: list[str] = []
    for one in submitted:
        unit, is_sure = _unit_of(one, by_id, by_name, by_group)
        if unit is None:
            unknown.append(one)
        else:
            found.setdefault(unit, []).append((one, is_sure))
    known: dict[Unit, Submitted] = {}
    for unit, mine in found.items():
        sure = [one for one, is_sure in mine if is_sure]
        named = [one for one, is_sure in mine if not is_sure]
        if len(named) > 1 or (named and sure):
            warnings.append(_doubt(units[unit], named, sure))
            unknown += named
            named = []
        if sure or named:
            known[unit] = _joined(sure or named, units[unit])
    warnings += [f"the roster has no student for {_shown(one)}" for one in unknown if not _is_doubtful(one, warnings)]
    missing = {unit: _missing(units[unit], submitted) for unit in range(len(units)) if unit not in known}
    return Roll([*(found_or for _, found_or in sorted({**known, **missing}.items())), *unknown], warnings)


def _units(roster: Sequence[Student]) -> list[Student]:
    """Students and groups. Groups of one name in two sections are two."""
    found: dict[tuple[str, ...], list[Student]] = {}
    for number, one in enumerate(roster):
        key = (one.section, folded(one.group)) if folded(one.group) else (str(number),)
        found.setdefault(key, []).append(one)
    return [mine[0] if not mine[0].group else _group(mine) for mine in found.values()]


def _group(members: Sequence[Student]) -> Student:
    first = members[0]
    times = [one.submitted for one in members if one.submitted is not None]
    return Student(
        first.group,
        section=first.section,
        group=first.group,
        members=tuple(members),
        submitted=max(times, default=None),
    )


Index = dict[str, dict[Unit, Student]]
"""By a word, the units that it means, each with the student who has it."""


def _index(units: Sequence[Student], words: Callable[[Student], Iterable[str]]) -> Index:
    found: Index = {}
    for number, unit in enumerate(units):
        for one in unit.people:
            for word in words(one):
                found.setdefault(word, {})[number] = one
    return found


def _by_id(who: Student, index: Index) -> Iterator[Mapping[Unit, Student]]:
    """Whom the identifiers of a student mean. A number alone means nobody of another name: systems number people in
    different ways."""
    for word in who.identifiers:
        rows = index.get(folded(word), {})
        forms = name_forms(who.name)
        yield {
            unit: one
            for unit, one in rows.items()
            if not (word.isdecimal() and forms and one.name and forms.isdisjoint(name_forms(one.name)))
        }


def _unit_of(one: Submitted, by_id: Index, by_name: Index, by_group: Index) -> tuple[Unit | None, bool]:
    """Whose a submission is, if that is one unit only; and whether an identifier or a group says so."""
    people = one.student.people
    identifiers = [row for who in people for row in _by_id(who, by_id)]
    groups = [by_group.get(folded(word), {}) for word in (one.student.name, one.student.id) if word]
    for rows in (identifiers, groups):
        if found := _units_in(rows):
            return (found.pop(), True) if len(found) == 1 else (None, False)
    forms = {form for who in people for word in (who.name, who.id.replace("_", " ")) for form in name_forms(word)}
    found = _units_in(by_name.get(form, {}) for form in forms)
    return (found.pop(), False) if len(found) == 1 else (None, False)


def _units_in(rows: Iterable[Mapping[Unit, Student]]) -> set[Unit]:
    return {unit for row in rows for unit in row}


def _joined(mine: Sequence[Submitted], unit: Student) -> Submitted:
    files = tuple(file for one in mine for file in one.files)
    path = mine[0].path if len(mine) == 1 else join(shared_folder([one.path for one in mine]), unit.name)
    times = [one.student.submitted for one in mine if one.student.submitted is not None]
    when = unit.submitted if unit.submitted is not None else max(times, default=None)
    return Submitted(path, files, replace(unit, submitted=when), mine[0].key if len(mine) == 1 else unit.name)


def _missing(unit: Student, submitted: Sequence[Submitted]) -> Submitted:
    word = unit.name or unit.id
    path = join(shared_folder([one.path for one in submitted]), f"{word} (missing)")
    return Submitted(path, (), unit, unit.id or word, is_missing=True)


def _doubt(unit: Student, named: Sequence[Submitted], sure: Sequence[Submitted]) -> str:
    words = " and ".join(_shown(one) for one in (*sure, *named))
    return f"{words} may all be by {sanitized(unit.name)}; put the id into their names, or their files into one folder"


def _shown(one: Submitted) -> str:
    return sanitized(one.key or one.path)


def _is_doubtful(one: Submitted, warnings: Sequence[str]) -> bool:
    return any(_shown(one) in warning for warning in warnings)
