"""Which files are one submission, and the best verdict on each puzzle in it."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from puzzles.failure import sanitized
from puzzles.grading.discover import entries, found_in, other_files
from puzzles.grading.submission import SourceFile
from puzzles.grading.verdict import LOST, Graded, Student, Verdict
from puzzles.tracks import ALL, default_slugs, track_of

from .exports import SUBMITTED, Origin, is_export, is_named_file, origins

NBGRADER = ("nbgrader_config.py", "gradebook.db")


@dataclass(frozen=True)
class Submitted:
    """A submission: its files, and who handed it in. Its only key is its unit, its place in the list of all
    submissions; `path` and `key` are for people, and two may be equal."""

    path: str
    files: tuple[SourceFile, ...]
    student: Student = Student()  # noqa: RUF009  # immutable
    key: str = ""
    """Its name in the class, without the folder of the class."""
    is_missing: bool = False
    """True for a student on the roster who has handed in nothing."""


def handed_in(paths: Sequence[str], each_file: bool = False) -> list[Submitted]:
    """The submissions at paths. In a folder, each file and each folder directly below it is one, even without a file
    that can be graded; `each_file` makes every file one, at any depth. A path of a file is one.
    """
    files = found_in(paths)
    if each_file:
        return [alone(file) for files_there in files.values() for file in files_there]
    found: list[Submitted] = []
    for number, (path, files_there) in enumerate(files.items()):
        if not files_there and any(_is_below(path, other) for other in list(files)[:number]):
            continue
        is_class = os.path.isdir(path) and not any(file.path == path for file in files_there)
        found += _of_class(path, files_there) if is_class else map(alone, files_there)
    return found


def _is_below(path: str, folder: str) -> bool:
    return Path(os.path.abspath(path)).is_relative_to(os.path.abspath(folder))


def alone(file: SourceFile) -> Submitted:
    return Submitted(file.path, (file,), Student(id=Path(file.path).stem), os.path.basename(file.path))


def as_one(submitted: Sequence[Submitted], path: str) -> list[Submitted]:
    """All submissions as one student's."""
    files = tuple({os.path.abspath(file.path): file for one in submitted for file in one.files}.values())
    return [Submitted(files[0].path if len(files) == 1 else path, files, key=os.path.basename(os.path.abspath(path)))]


def with_times(submitted: Iterable[Submitted]) -> list[Submitted]:
    """The submissions with the time of the newest of their files, where nothing else says when they were handed in."""
    return [
        replace(one, student=replace(one.student, submitted=max(file.modified for file in one.files)))
        if one.files and one.student.submitted is None
        else one
        for one in submitted
    ]


def shared_folder(paths: Sequence[str]) -> str:
    """The folder that contains all paths; empty if they have none in common."""
    try:
        return os.path.commonpath([os.path.dirname(path) for path in paths])
    except ValueError:  # relative and absolute paths, other drives, no files
        return ""


def _of_class(path: str, files: Sequence[SourceFile]) -> Iterable[Submitted]:
    folder = _class_folder(path)
    by_name: dict[str, list[SourceFile]] = {name: [] for name in (*entries(folder), *_other_work(folder))}
    for file in files:
        inside = Path(os.path.relpath(file.path, folder)).parts
        if inside[0] != os.pardir:
            by_name.setdefault(inside[0], []).append(file)
    return _grouped(by_name, origins(folder, list(by_name)))


def _grouped(by_name: Mapping[str, Sequence[SourceFile]], whose: Mapping[str, Origin]) -> list[Submitted]:
    found: dict[str, Submitted] = {}
    for name in sorted(by_name):
        key, student, path = whose[name]
        files = tuple(by_name[name])
        before = found.get(key, Submitted(path, (), student, key))
        found[key] = replace(before, files=(*before.files, *files))
    return [replace(one, path=one.files[0].path) if len(one.files) == 1 else one for one in found.values()]


def _other_work(folder: str) -> list[str]:
    """Files that cannot be graded, such as PDFs, in a folder whose file names all name a student."""
    shown = entries(folder)
    mine = [name for name in other_files(folder) if is_named_file(name)]
    return mine if all(map(is_named_file, shown)) else []


def _class_folder(path: str) -> str:
    """The folder of the submissions: below an nbgrader course, or in the one folder that an archive has packed."""
    if any(os.path.exists(os.path.join(path, name)) for name in NBGRADER):
        inner = os.path.join(path, SUBMITTED)
        return inner if os.path.isdir(inner) else path
    names = entries(path)
    if len(names) == 1 and not is_export(path, names):
        inner = os.path.join(path, names[0])
        if os.path.isdir(inner) and is_export(inner, entries(inner)):
            return inner
    return path


NO_FILE = "there is no .py or .ipynb here"
MISSING = "nothing was handed in"


class Gathering:
    """The submissions of a class, as their files are graded one by one."""

    def __init__(
        self,
        submitted: Sequence[Submitted],
        slugs: Sequence[str],
        worth: Callable[[Verdict], float],
        finish: Callable[[Graded], Graded] = lambda graded: graded,
        aliases: Sequence[str] = (),
    ) -> None:
        """`slugs` that were asked for, or none; `worth` of a verdict in points; `finish` is called with each submission
        that is graded, and returns what to keep of it; `aliases` by unit, where nobody is to be named."""
        self._submitted = submitted
        self._slugs = slugs
        self._worth = worth
        self._finish = finish
        self._owner = {file.path: unit for unit, one in enumerate(submitted) for file in one.files}
        self._files: list[dict[str, Graded]] = [{} for _ in submitted]
        self._done: dict[int, Graded] = {}
        self._names = names_of(submitted)
        self._aliases = aliases

    def add(self, graded: Graded) -> Graded:
        """Takes the verdicts on a file; returns them without the runs."""
        unit = self._owner[graded.path]
        files, mine = self._submitted[unit].files, self._files[unit]
        mine[graded.path] = graded
        if len(mine) == len(files):
            self._done[unit] = self._finish(self._merged(unit, [mine[file.path] for file in files]))
            mine.clear()
        return without_runs(graded)

    def all(self) -> list[Graded]:
        """The submissions in their order, or in the order of their aliases. Of those without a file that could be
        graded, nothing was attempted."""
        for unit, one in enumerate(self._submitted):
            if not one.files:
                self._done[unit] = self._finish(self._blank(unit))
        found = [self._done[unit] for unit in range(len(self._submitted))]
        return sorted(found, key=lambda one: one.path) if self._aliases else found

    def _merged(self, unit: int, files: Sequence[Graded]) -> Graded:
        found: dict[str, list[Verdict]] = {}
        for file in files:
            for verdict in file.verdicts:
                mine = replace(verdict, found_in=file.path) if len(files) > 1 else verdict
                found.setdefault(verdict.puzzle, []).append(mine)
        best = tuple(max(found[slug], key=self._rank) for slug in ALL if slug in found)
        return self._graded(unit, best)

    def _rank(self, verdict: Verdict) -> tuple[object, ...]:
        """Greater is better. A lost verdict is better than a failure, so that it is seen and graded again."""
        better = tuple(-figure for figure in verdict.figures.values())
        return self._worth(verdict), verdict.stars, verdict.reason == LOST, verdict.attempted, better

    def _blank(self, unit: int) -> Graded:
        words = MISSING if self._submitted[unit].is_missing else NO_FILE
        verdicts = []
        for slug in self._slugs or default_slugs():
            track = track_of(slug)
            targets = track.targets(track.puzzle(slug))
            verdicts.append(Verdict(slug, track.name, "not_attempted", targets, message=words))
        return self._graded(unit, tuple(verdicts))

    def _graded(self, unit: int, verdicts: tuple[Verdict, ...]) -> Graded:
        one = self._submitted[unit]
        if not self._aliases:
            return Graded(one.path, verdicts, one.student, self._names[unit], unit=unit)
        alias = self._aliases[unit]
        unnamed = tuple(replace(v, found_in="") if v.found_in else v for v in verdicts)
        return Graded(alias, unnamed, one.student, alias, is_anonymous=True, unit=unit)


def without_runs(graded: Graded) -> Graded:
    return replace(graded, verdicts=tuple(replace(v, trace="") if v.trace else v for v in graded.verdicts))


def names_of(submitted: Sequence[Submitted]) -> list[str]:
    """What reports call each submission: the student's name, with something else if several have it; empty where no
    name is known."""
    names = [sanitized(one.student.name) for one in submitted]
    return distinct(names, *tellers([one.student for one in submitted]), [sanitized(one.key) for one in submitted])


def page_labels(submitted: Sequence[Submitted]) -> list[str]:
    """What the names of pages are made from, so that a page keeps its name as others come and go: the name in the
    class; of several that have it, with what tells them apart."""
    students, paths = [one.student for one in submitted], [one.path for one in submitted]
    return distinct([one.key or one.path for one in submitted], *tellers(students), paths)


def tellers(students: Sequence[Student]) -> list[list[str]]:
    """What tells students and groups of one name apart: their identifiers; their sections."""
    identifiers = [sanitized(next(iter(one.identifiers), "")) for one in students]
    return [identifiers, [sanitized(one.section) for one in students]]


def distinct(texts: Sequence[str], *tellers: Sequence[str]) -> list[str]:
    """The texts. Those that are equal get an addition in brackets, from the first of `tellers` that has a word of its
    own for each of them, else a number; empty ones stay empty."""
    equal: dict[str, list[int]] = {}
    for place, text in enumerate(texts):
        equal.setdefault(text, []).append(place)
    told = list(texts)
    for text, places in equal.items():
        if text and len(places) > 1:
            additions = ([words[place] for place in places] for words in tellers)
            numbers = [str(number) for number in range(1, len(places) + 1)]
            chosen = next((words for words in additions if all(words) and len({*words}) == len(words)), numbers)
            for place, word in zip(places, chosen):
                told[place] = f"{text} ({word})"
    return told
