"""Which files are one submission: those of a student's folder, or what a platform's names say are one student's."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from puzzles.grading.discover import entries, found_in, other_files
from puzzles.grading.source_file import SourceFile
from puzzles.grading.student import Student

from .exports import SUBMITTED, Origin, is_export, is_named_file, origins

NBGRADER = ("nbgrader_config.py", "gradebook.db")


@dataclass(frozen=True)
class Submitted:
    """A submission: its files, and who handed it in. `path` stands for it in reports."""

    path: str
    files: tuple[SourceFile, ...]
    student: Student = Student()  # noqa: RUF009  # immutable
    key: str = ""
    """Its name in the class, wherever that lies."""
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
    """A file as a submission."""
    return Submitted(file.path, (file,), Student(id=Path(file.path).stem), os.path.basename(file.path))


def as_one(submitted: Sequence[Submitted], path: str) -> list[Submitted]:
    """All of it as one student's."""
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
    """Files that cannot be graded, such as PDFs, whose names say whose they are, as all names there do."""
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
