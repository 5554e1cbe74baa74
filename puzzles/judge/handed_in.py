"""Which files are one submission, and the best verdict on each puzzle in it.

In a folder, each file and each folder directly below it is a submission. Names that Moodle and Canvas give are
recognized only if all entries have them, since one may be a coincidence; recognition of more platforms was given up,
because a roster does it better. The key of a submission is its place in the list of all, so that two with equal names
stay two. Of several files the best verdict on a puzzle counts, and says which file it is from. Who a student is on a
roster is decided in `roster`; what verdicts are worth, in `points`.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from puzzles.failure import sanitized
from puzzles.judge.submission import SourceFile, entries, found_in
from puzzles.judge.verdict import LOST, Graded, Student, Verdict
from puzzles.tracks import ALL, default_slugs, track_of


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
        others = [os.path.abspath(other) for other in list(files)[:number]]
        if not files_there and any(Path(os.path.abspath(path)).is_relative_to(other) for other in others):
            continue
        is_class = os.path.isdir(path) and not any(file.path == path for file in files_there)
        found += _of_class(path, files_there) if is_class else map(alone, files_there)
    return found


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


PLATFORMS = (
    (re.compile(r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_(?:file|onlinetext)(?:_.*)?", re.DOTALL), "Participant "),
    (re.compile(r"(?P<name>[^_]+)_(?:LATE_)?(?P<id>\d+)_\d{2,}_.+", re.DOTALL), ""),
)
"""How Moodle (mod/assign/locallib.php, `download_submissions`) and Canvas ("Download Submissions") name what they
export, and what a roster has in front of the number: Moodle numbers the participants of one assignment."""


def _of_class(path: str, files: Sequence[SourceFile]) -> list[Submitted]:
    by_name: dict[str, list[SourceFile]] = {name: [] for name in entries(path)}
    for file in files:
        by_name.setdefault(Path(os.path.relpath(file.path, path)).parts[0], []).append(file)
    students = _named_by_platform(by_name)
    found: dict[str, Submitted] = {}
    for name in sorted(by_name):
        stem = name if os.path.isdir(os.path.join(path, name)) else Path(name).stem
        key, student = students.get(name) or (name, Student(id=stem))
        before = found.get(key, Submitted(os.path.join(path, key), (), student, key))
        found[key] = replace(before, files=(*before.files, *by_name[name]))
    return [replace(one, path=one.files[0].path) if len(one.files) == 1 else one for one in found.values()]


def _named_by_platform(names: Collection[str]) -> dict[str, tuple[str, Student]]:
    """The key and the student of each entry of a class, if all are named as one platform names them: a single such name
    may be a coincidence."""
    for pattern, number in PLATFORMS:
        matches = {name: match for name in names if (match := pattern.fullmatch(name))}
        if matches and len(matches) == len(names):
            return {
                name: (f"{match['name']}_{match['id']}", Student(match["name"], number + match["id"]))
                for name, match in matches.items()
            }
    return {}


class Gathering:
    """The submissions of a class, as their files are graded one by one."""

    def __init__(
        self,
        submitted: Sequence[Submitted],
        slugs: Sequence[str],
        worth: Callable[[Verdict], float],
        finish: Callable[[Graded], Graded] = lambda graded: graded,
    ) -> None:
        """`slugs` that were asked for, or none; `worth` of a verdict in points; `finish` is called with each submission
        that is graded, and returns what to keep of it."""
        self._submitted = submitted
        self._slugs = slugs
        self._worth = worth
        self._finish = finish
        self._owner = {file.path: unit for unit, one in enumerate(submitted) for file in one.files}
        self._files: list[dict[str, Graded]] = [{} for _ in submitted]
        self._done: dict[int, Graded] = {}
        self._names = names_of(submitted)

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
        """The submissions in their order. Of those without a file that could be graded, nothing was attempted."""
        for unit, one in enumerate(self._submitted):
            if not one.files:
                self._done[unit] = self._finish(self._blank(unit))
        return [self._done[unit] for unit in range(len(self._submitted))]

    def _merged(self, unit: int, files: Sequence[Graded]) -> Graded:
        found: dict[str, list[Verdict]] = {}
        for file in files:
            for verdict in file.verdicts:
                mine = replace(verdict, found_in=file.path) if len(files) > 1 else verdict
                found.setdefault(verdict.puzzle, []).append(mine)
        return self._graded(unit, tuple(max(found[slug], key=self._rank) for slug in ALL if slug in found))

    def _rank(self, verdict: Verdict) -> tuple[object, ...]:
        """Greater is better. A lost verdict is better than a failure, so that it is seen and graded again."""
        better = tuple(-figure for figure in verdict.figures.values())
        return self._worth(verdict), verdict.stars, verdict.reason == LOST, verdict.attempted, better

    def _blank(self, unit: int) -> Graded:
        is_missing = self._submitted[unit].is_missing
        words = "nothing was handed in" if is_missing else "there is no .py or .ipynb here"
        verdicts = []
        for slug in self._slugs or default_slugs():
            track = track_of(slug)
            targets = track.words.targets(track.puzzle(slug))
            verdicts.append(Verdict(slug, track.name, "not_attempted", targets, message=words))
        return self._graded(unit, tuple(verdicts))

    def _graded(self, unit: int, verdicts: tuple[Verdict, ...]) -> Graded:
        one = self._submitted[unit]
        return Graded(one.path, verdicts, one.student, self._names[unit], unit)


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
