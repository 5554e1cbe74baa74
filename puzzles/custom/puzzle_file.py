"""A puzzle with its files: its reference, wrong solutions, and trials of a class."""

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

from lib import PuzzleError
from puzzles.catalog.content import ChapterFile, Placed, fields_of
from puzzles.catalog.content import shown as shown
from puzzles.catalog.fields import OwnPuzzleError
from puzzles.catalog.puzzle import Paper, Puzzle
from puzzles.failure import UNPARSABLE, sanitized
from puzzles.tracks import TRACKS


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
    track = track_named(puzzle)
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


def track_named(puzzle: Puzzle) -> str:
    """The name of the track that a puzzle is for, by its class."""
    of = type(puzzle).__name__
    found = next((name for name in TRACKS if f"{name.capitalize()}Puzzle" == of), None)
    if found is None:
        raise OwnPuzzleError(f"{puzzle.slug}: no track has puzzles of the class {of}")
    return found


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
