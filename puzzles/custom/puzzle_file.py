"""A puzzle with what a teacher keeps beside it: its reference, wrong solutions, and trials of a class."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from puzzles.catalog.fields import OwnPuzzleError
from puzzles.catalog.puzzle import Puzzle
from puzzles.failure import plain
from puzzles.tracks import TRACKS


@dataclass(frozen=True)
class OwnPuzzle:
    """A puzzle as a file gives it. Paths are relative to the folder of the file; what they name need not exist, so
    that a folder can be handed out without its solutions."""

    puzzle: Puzzle
    track: str
    file: Path
    reference: str = ""
    wrong: Mapping[str, str] = field(default_factory=dict)
    """Wrong solutions by path, each with the status or the reason that it is to get."""
    trials: Callable[[], tuple[Any, ...]] = tuple
    """Makers of the trials of a class."""
    has_targets: bool = True

    @property
    def slug(self) -> str:
        return self.puzzle.slug

    def path(self, name: str) -> Path:
        """A file beside this one."""
        return self.file.parent / name


def shown(path: Path) -> str:
    """A path as messages have it: from the current folder, if it is below that."""
    with suppress(OSError):  # the current folder may be gone
        if Path.cwd() in path.parents:
            return str(path.relative_to(Path.cwd()))
    return str(path)


def module_at(path: Path) -> ModuleType:
    """Runs a Python file of a teacher as a module of its own; with all rights, as it is the teacher's.

    Raises:
        OwnPuzzleError: it cannot be read or run.
    """
    spec = spec_from_file_location(f"own_puzzles_{abs(hash(str(path)))}_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise OwnPuzzleError(f"{shown(path)}: there is no such Python file")
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as why:
        raise OwnPuzzleError(f"{shown(path)}: {type(why).__name__}: {plain(str(why))[:300]}") from None
    return module


def trials_at(path: Path) -> tuple[Any, ...]:
    """The makers of trials that a Python file lists in TRIALS.

    Raises:
        OwnPuzzleError: it has none.
    """
    trials = getattr(module_at(path), "TRIALS", None)
    if not isinstance(trials, tuple | list) or not trials or not all(map(callable, trials)):
        raise OwnPuzzleError(
            f"{shown(path)}: it defines no TRIALS, a tuple of functions, each of which returns a Trial"
        )
    return tuple(trials)


def from_python(path: Path) -> OwnPuzzle:
    """The puzzle that a Python file defines as PUZZLE, with REFERENCE, WRONG and TRIALS where it has them.

    Raises:
        OwnPuzzleError: it cannot be run, or defines no puzzle of its own name.
    """
    _require_puzzle(path)
    module = module_at(path)
    puzzle = getattr(module, "PUZZLE", None)
    if not isinstance(puzzle, Puzzle):
        raise OwnPuzzleError(
            f"{shown(path)}: PUZZLE is no puzzle; make it a SchedulePuzzle, an EnginePuzzle or a LayoutPuzzle"
        )
    if puzzle.slug != path.stem:
        raise OwnPuzzleError(f"{shown(path)}: it defines the puzzle '{puzzle.slug}'; call the file {puzzle.slug}.py")
    wrong = dict(getattr(module, "WRONG", {}))
    trials = (lambda: tuple(module.TRIALS)) if hasattr(module, "TRIALS") else tuple
    return OwnPuzzle(puzzle, track_named(puzzle), path, getattr(module, "REFERENCE", ""), wrong, trials)


def _require_puzzle(path: Path) -> None:
    """Refuses a file that does not set PUZZLE before it is run: it may be a student's, in a folder that was meant for
    grading.

    Raises:
        OwnPuzzleError: it does not, or cannot be read.
    """
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError) as why:
        raise OwnPuzzleError(f"{shown(path)}: {why}") from None
    names = {getattr(node, "id", getattr(node, "asname", None) or getattr(node, "name", "")) for node in ast.walk(tree)}
    if "PUZZLE" not in names:
        raise OwnPuzzleError(
            f"{shown(path)}: it defines no PUZZLE; in a folder of puzzles, keep solutions in folders of their own, and "
            "begin the names of other files with '_'"
        )


def track_named(puzzle: Puzzle) -> str:
    """The name of the track that a puzzle is for, by its class.

    Raises:
        OwnPuzzleError: there is none.
    """
    of = type(puzzle).__name__
    found = next((name for name, track in TRACKS.items() if track.puzzle_class == of), None)
    if found is None:
        raise OwnPuzzleError(f"{puzzle.slug}: no track has puzzles of the class {of}")
    return found
