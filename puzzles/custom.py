"""Puzzles of teachers: a folder with a file for each puzzle, in TOML or Python, becomes chapters of the tracks.

from puzzles.custom import add_folder
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import entry_points
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from traceback import extract_tb
from typing import Any

from puzzles.catalog.content import CHAPTER_FILE, ChapterFile, PuzzleGroup, parsed
from puzzles.catalog.fields import OwnPuzzleError as OwnPuzzleError
from puzzles.catalog.puzzle import Puzzle
from puzzles.sandbox import visible_files
from puzzles.tracks import TRACKS, add_chapter, remove_chapter

from .puzzle_file import OwnPuzzle, error_text, from_python, from_toml, shown

COURSE_FILE = "course.toml"
"""The file of a course, with its points and dates. It is read elsewhere."""

FOLDERS_VARIABLE = "TRAINING_PUZZLES_FOLDERS"
"""Environment variable with folders of puzzles, separated as in PATH."""


@dataclass(frozen=True, kw_only=True)
class OwnChapter(PuzzleGroup):
    """The puzzles of a folder for one track."""

    puzzles: Mapping[str, OwnPuzzle]

    def puzzle(self, slug: str) -> Puzzle:
        return self.puzzles[slug].puzzle

    def trials(self, slug: str) -> tuple[Any, ...]:
        """Makers of the trials of a class."""
        return self.puzzles[slug].trials()


@dataclass(frozen=True)
class OwnFolder:
    """A folder that was read: its chapters by track, and a digest of everything that they depend on."""

    path: Path
    chapters: Mapping[str, OwnChapter]
    digest: str

    @property
    def puzzles(self) -> dict[str, OwnPuzzle]:
        """Its puzzles by slug, in the order of play."""
        return {slug: own for chapter in self.chapters.values() for slug, own in chapter.puzzles.items()}


_added: dict[Path, OwnFolder] = {}


def add_folder(path: str | Path, draft: bool = False) -> OwnFolder:
    """Adds the puzzles of a folder to their tracks; one that has changed since it was added is read again. Code that
    is graded later cannot read the folder.

    With `draft`, puzzles may lack targets.
    """
    found = read_folder(path, draft)
    before = _added.get(found.path)
    if before == found or (before is not None and before.digest == found.digest):
        return before
    if before is not None:
        remove_folder(path)
    done = []
    try:
        for track, chapter in found.chapters.items():
            add_chapter(TRACKS[track], chapter)
            done.append((TRACKS[track], chapter))
    except ValueError as why:
        for one, chapter in done:
            remove_chapter(one, chapter)
        raise OwnPuzzleError(f"{path}: {why}; rename the file or the folder") from None
    _added[found.path] = found
    visible_files.hide(found.path)
    return found


def remove_folder(path: str | Path) -> None:
    """Removes a folder that was added."""
    found = _added.pop(Path(path).resolve())
    for track, chapter in found.chapters.items():
        remove_chapter(TRACKS[track], chapter)
    visible_files.show(found.path)


@contextmanager
def folder_added(path: str | Path, draft: bool = False) -> Iterator[OwnFolder]:
    """Adds a folder within the block."""
    found = add_folder(path, draft)
    try:
        yield found
    finally:
        if found.path in _added:
            remove_folder(found.path)


def folders() -> tuple[OwnFolder, ...]:
    """The folders that have been added."""
    return tuple(_added.values())


def home_of(slug: str) -> OwnFolder | None:
    """The folder that a puzzle comes from; None for the game's own puzzles."""
    return next((folder for folder in _added.values() if slug in folder.puzzles), None)


def fault_in(slug: str, error: Exception) -> str:
    """What is wrong with a teacher's puzzle that made this error: where, and what; empty if no teacher's did."""
    if isinstance(error, OwnPuzzleError):
        return str(error)
    home = home_of(slug)
    if home is None:
        return ""
    frames = [f for f in extract_tb(error.__traceback__) if Path(f.filename).is_relative_to(home.path)]
    where = (
        f"{shown(Path(frames[-1].filename))}, line {frames[-1].lineno}" if frames else shown(home.puzzles[slug].file)
    )
    return f"{where}: {error_text(error)}"


def add_installed() -> list[str]:
    """Adds the folders that TRAINING_PUZZLES_FOLDERS names and those of the packages that are entry points. Returns a
    sentence for each that cannot be used; the others are added."""
    problems = []

    def add(name: str, folder: Callable[[], str]) -> None:
        try:
            add_folder(folder())
        except OwnPuzzleError as why:
            problems.append(f"{name}: {why}")

    for path in filter(None, os.environ.get(FOLDERS_VARIABLE, "").split(os.pathsep)):
        add(FOLDERS_VARIABLE, partial(str, path))
    for point in entry_points(group="training_puzzles.puzzles"):
        add(f"the entry point '{point.name}'", partial(_package_folder, point.module))
    return problems


def _package_folder(module: str) -> str:
    with suppress(Exception):  # a package above it may fail when it is imported
        spec = find_spec(module)
        if spec is not None and spec.submodule_search_locations:
            return spec.submodule_search_locations[0]
    raise OwnPuzzleError(f"there is no package {module} with a folder of puzzles")


def read_folder(path: str | Path, draft: bool = False) -> OwnFolder:
    """Reads a folder of puzzles and adds nothing."""
    try:
        folder = Path(path).resolve()
        is_file, is_folder = folder.is_file(), folder.is_dir()
    except (OSError, ValueError) as why:
        raise OwnPuzzleError(f"{path!s:.80}: this cannot be a folder: {getattr(why, 'strerror', why)}") from None
    if is_file:
        raise OwnPuzzleError(f"{path}: this is a file; name the folder that it is in, {shown(folder.parent)}")
    if not is_folder:
        raise OwnPuzzleError(f"{path}: this folder does not exist; 'puzzles new NAME' creates one")
    if visible_files.INSTALL_ROOT.is_relative_to(folder):
        raise OwnPuzzleError(f"{path}: this folder contains the game itself; keep your puzzles in another")
    file = folder / CHAPTER_FILE
    about = ChapterFile.read(file, parsed(file) if file.exists() else {})
    puzzles = [_read(file, about, draft) for file in puzzle_files(folder)]
    if not puzzles:
        raise OwnPuzzleError(f"{path}: it has no puzzle file, such as relay.toml; 'puzzles new NAME' writes one")
    slugs = [own.slug for own in puzzles]
    if twice := [slug for slug in slugs if slugs.count(slug) > 1]:
        raise OwnPuzzleError(f"{path}: '{twice[0]}' exists twice, in TOML and in Python; keep one")
    order = about.in_order(slugs, file)
    puzzles.sort(key=lambda own: order.index(own.slug))
    tracks = [name for name in TRACKS if any(own.track == name for own in puzzles)]
    chapters = {}
    for track in tracks:
        name = folder.name if len(tracks) == 1 else f"{folder.name}-{track}"
        members = {own.slug: own for own in puzzles if own.track == track}
        chapters[track] = OwnChapter(
            name.lower(), about.title, about.idea, tuple(members), folder.name.lower(), puzzles=members
        )
    return OwnFolder(folder, chapters, _digest(folder))


def puzzle_files(folder: Path) -> list[Path]:
    """The files of a folder that are puzzles."""
    return [
        file
        for file in sorted(folder.iterdir())
        if file.suffix in (".toml", ".py")
        and file.name not in (CHAPTER_FILE, COURSE_FILE)
        and not file.name.startswith((".", "_"))
    ]


def _read(file: Path, chapter: ChapterFile, draft: bool) -> OwnPuzzle:
    if not file.stem.isidentifier() or iskeyword(file.stem):
        raise OwnPuzzleError(
            f"{shown(file)}: a puzzle and its function have the name of the file; '{file.stem}' cannot be one"
        )
    return from_python(file) if file.suffix == ".py" else from_toml(file, chapter, draft)


def _digest(folder: Path) -> str:
    """A digest of the files that the folder's puzzles may depend on."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        if file.suffix in (".toml", ".py", ".json") and file.is_file():
            digest.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]
