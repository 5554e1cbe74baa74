"""Puzzles of teachers: a folder with a file for each puzzle, in TOML or Python, becomes chapters of the tracks.

from puzzles.custom import add_folder

Here is decided which files of a folder are puzzles, what a file may say besides the puzzle (its reference, wrong
solutions and trials), and that a folder is added as a whole or not at all. From then on no graded definition can read
the folder. `puzzles.catalog` reads the fields of a puzzle, as it does for the game's own puzzles. A Python file of a
teacher runs with all rights, as it is the teacher's. A file that does not set PUZZLE is refused before it runs: it may
be a student's, in a folder that was meant for grading.

Rejected: a format of its own for teachers' puzzles, which could say less than the game's, and was the design before.
Rejected: solutions in the folder that must exist, since a folder is handed out without them.
"""

import ast
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import entry_points
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from itertools import groupby
from keyword import iskeyword
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any

from lib import PuzzleError
from puzzles.catalog.content import CHAPTER_FILE, ChapterFile, Placed, PuzzleGroup, fields_of, parsed
from puzzles.catalog.content import shown as shown
from puzzles.catalog.fields import OwnPuzzleError as OwnPuzzleError
from puzzles.catalog.puzzle import Paper, Puzzle
from puzzles.failure import UNPARSABLE, sanitized
from puzzles.sandbox import visible_files
from puzzles.tracks import TRACKS, add_chapter, remove_chapter

# --- A puzzle with its files: its reference, wrong solutions, and trials of a class ---


@dataclass(frozen=True)
class OwnPuzzle:
    """A puzzle as a file gives it. Paths are relative to `root`, which is the folder of the file unless it is given;
    what they name need not exist, so that a folder can be handed out without its solutions."""

    puzzle: Puzzle
    track: str
    file: Path
    reference: str = ""
    wrong: Mapping[str, str] = field(default_factory=dict)
    """Wrong solutions by path, each with the status or the reason that it should get."""
    trials: Callable[[], tuple[Any, ...]] = tuple
    """Makers of the trials of a class."""
    has_targets: bool = True
    root: Path | None = None

    @property
    def slug(self) -> str:
        return self.puzzle.slug

    def path(self, name: str) -> Path:
        return (self.root or self.file.parent) / name


EDITS = ".diff"
"""The ending of a wrong solution that is given as its edits of the reference."""


def edited(reference: Path, path: Path) -> str:
    """The reference with the edits in a file, a diff in which hunks are divided by '@@': the lines of a hunk that begin
    with '-' or a space are lines of the reference, and those that begin with '+' or a space come in their place. Lines
    that begin with '#' are notes."""
    try:
        left, given = (file.read_text(encoding="utf-8").splitlines() for file in (reference, path))
    except (OSError, UnicodeDecodeError) as why:
        raise OwnPuzzleError(f"{shown(path)}, or {shown(reference)}: {why}") from None
    done, lines = list[str](), [(n, line) for n, line in enumerate(given, 1) if line[:1] != "#"]
    for is_mark, hunk in groupby(lines, lambda numbered: numbered[1].startswith("@@")):
        if is_mark:
            continue
        (first, _), *_ = rows = list(hunk)
        if wrong := [number for number, line in rows if line[:1] not in ("", " ", "-", "+")]:
            raise OwnPuzzleError(f"{shown(path)}, line {wrong[0]}: a line of a diff begins with ' ', '-', '+' or '@@'")
        old, new = ([line[1:] for _, line in rows if line[:1] in ("", " ", sign)] for sign in "-+")
        places = (at for at in range(len(left)) if left[at : at + len(old)] == old)
        place = next(places, None)
        if place is None or not old:
            raise OwnPuzzleError(f"{shown(path)}, line {first}: the reference has no such lines here: {old[:1]!r:.80}")
        done += left[:place] + new
        left = left[place + len(old) :]
    return "\n".join([*done, *left]) + "\n"


def module_at(path: Path) -> ModuleType:
    """Runs a Python file of a teacher as a module of its own; with all rights, as it is the teacher's."""
    spec = spec_from_file_location(f"own_puzzles_{abs(hash(str(path)))}_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise OwnPuzzleError(f"{shown(path)}: there is no such Python file")
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as why:
        raise OwnPuzzleError(f"{shown(path)}: {error_text(why)}") from None
    return module


def error_text(error: BaseException) -> str:
    return f"{type(error).__name__}: {sanitized(str(error))[:300]}"


def _trials_in(module: ModuleType, path: Path) -> tuple[Any, ...]:
    """The makers of trials that a Python file lists in TRIALS."""
    trials = getattr(module, "TRIALS", None)
    if not isinstance(trials, tuple | list) or not trials or not all(map(callable, trials)):
        raise OwnPuzzleError(
            f"{shown(path)}: it defines no TRIALS, a tuple of functions, each of which returns a Trial"
        )
    return tuple(trials)


def from_python(path: Path) -> OwnPuzzle:
    """The puzzle that a Python file defines as PUZZLE, with REFERENCE, WRONG and TRIALS where it has them."""
    _require_puzzle(path)
    module = module_at(path)
    puzzle = getattr(module, "PUZZLE", None)
    if not isinstance(puzzle, Puzzle):
        raise OwnPuzzleError(
            f"{shown(path)}: PUZZLE is not a puzzle; make it a SchedulePuzzle, an EnginePuzzle or a LayoutPuzzle"
        )
    if puzzle.slug != path.stem:
        raise OwnPuzzleError(f"{shown(path)}: it defines the puzzle '{puzzle.slug}'; call the file {puzzle.slug}.py")
    reference, wrong = getattr(module, "REFERENCE", ""), getattr(module, "WRONG", {})
    if not isinstance(reference, str):
        raise OwnPuzzleError(f"{shown(path)}: REFERENCE is the path of a file; got {reference!r:.80}")
    if not isinstance(wrong, Mapping) or not all(isinstance(text, str) for row in wrong.items() for text in row):
        raise OwnPuzzleError(
            f"{shown(path)}: WRONG is a dictionary of paths, each with the status or reason to get; got {wrong!r:.80}"
        )
    _require_texts(puzzle, path)
    of = type(puzzle).__name__
    track = next((name for name in TRACKS if f"{name.capitalize()}Puzzle" == of), "")
    if not track:
        raise OwnPuzzleError(f"{puzzle.slug}: no track has puzzles of the class {of}")
    try:
        TRACKS[track].words.limits(puzzle), TRACKS[track].words.targets(puzzle)
    except Exception as why:
        raise OwnPuzzleError(f"{shown(path)}: PUZZLE has a field of a wrong type: {error_text(why)}") from None
    return OwnPuzzle(puzzle, track, path, reference, dict(wrong), partial(_trials_in, module, path))


def _require_texts(puzzle: Puzzle, path: Path) -> None:
    """Refuses a puzzle in Python that has something else where a string belongs."""
    for name, wanted in Puzzle.__annotations__.items():
        given = getattr(puzzle, name)
        if wanted == "str" and not isinstance(given, str):
            raise OwnPuzzleError(f"{shown(path)}: '{name}' must be a string; got {given!r:.80}")
        if wanted != "str" and not (isinstance(given, tuple) and all(isinstance(one, str | Paper) for one in given)):
            raise OwnPuzzleError(f"{shown(path)}: '{name}' must be a tuple of strings; got {given!r:.80}")


def _require_puzzle(path: Path) -> None:
    """Refuses a file that does not set PUZZLE before it is run: it may be a student's, in a folder that was meant for
    grading."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, *UNPARSABLE) as why:
        raise OwnPuzzleError(f"{shown(path)}: {error_text(why)}") from None
    names = {getattr(node, "id", getattr(node, "asname", None) or getattr(node, "name", "")) for node in ast.walk(tree)}
    if "PUZZLE" not in names:
        raise OwnPuzzleError(
            f"{shown(path)}: it defines no PUZZLE; in a folder of puzzles, keep solutions in folders of their own, and "
            "begin the names of other files with '_'"
        )


def from_toml(path: Path, chapter: ChapterFile, draft: bool = False, is_shipped: bool = False) -> OwnPuzzle:
    """The puzzle in a TOML file, whose name is the puzzle's; with `draft`, one without targets too. One of the game
    also says where it comes."""
    where = shown(path)
    fields = fields_of(path, chapter)
    if is_shipped:
        Placed.take(fields)
    track = TRACKS[fields.one_of("track", TRACKS)]
    has_targets = "targets" in fields
    if not has_targets and not draft:
        raise OwnPuzzleError(
            f"{where}: [targets] is missing; 'puzzles check {shown(path.parent)} --write' finds them with the reference"
        )
    reference = fields.text("reference", "")
    table = fields.table("wrong", {})
    wrong = {name: table.text(name) for name in table.names}
    try:
        puzzle = track.read(path.stem, fields)
    except PuzzleError as why:
        raise OwnPuzzleError(f"{where}: {why}") from None
    fields.done()
    file = path.parent / getattr(puzzle, "trials", "")
    return OwnPuzzle(puzzle, track.name, path, reference, wrong, lambda: _trials_in(module_at(file), file), has_targets)


# --- What is not ready to be played ---

TEXTS = ("title", "statement", "starter", "concept", "in_practice")

TAKEN = {"profile": "the page of 'Your own run'"}
"""Names that mean something else in addresses of the site."""


def unfinished(puzzle: Puzzle) -> list[str]:
    """The texts of a puzzle that still have the placeholder of drafts, by the names of its fields."""
    texts = {name: getattr(puzzle, name) for name in TEXTS} | {"hints": " ".join(puzzle.hints)}
    return [name for name, text in texts.items() if "TODO" in text]


# --- A folder of puzzles ---


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
