"""Reads a puzzle from a TOML file; `docs/teaching.md` documents its fields."""

import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from lib import PuzzleError
from puzzles.catalog.fields import Fields, OwnPuzzleError
from puzzles.tracks import TRACKS

from .puzzle_file import OwnPuzzle, shown, trials_at

TRIALS = (
    "the path of a Python file that defines TRIALS. TOML cannot say what a class is tried with: the right results come "
    "from a function. 'puzzles new NAME --track engine' writes a file to begin with"
)
"""What the field is, where it is missing or something else."""


def from_toml(path: Path, draft: bool = False) -> OwnPuzzle:
    """The puzzle in a TOML file, whose name is the puzzle's; with `draft`, one without targets too.

    Raises:
        OwnPuzzleError: naming the file, the field and what to do.
    """
    where = shown(path)
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as why:
        raise OwnPuzzleError(f"{where}: {why}") from None
    fields = Fields(where, given)
    track = TRACKS[fields.one_of("track", TRACKS)]
    has_targets = "targets" in fields
    if not has_targets and not draft:
        raise OwnPuzzleError(
            f"{where}: [targets] is missing; 'puzzles check {shown(path.parent)} --write' finds them with the reference"
        )
    reference = fields.text("reference", "")
    trials: Callable[[], tuple[Any, ...]] = tuple
    wrong = {
        name: Fields(f"{where}, [wrong]", {name: it}).text(name)
        for name, it in fields.table("wrong", {}).rest().items()
    }
    try:
        puzzle = track.read(path.stem, fields)
        if track.needs_trials:
            file = path.parent / fields.take("trials", TRIALS, lambda given: isinstance(given, str))
            trials = partial(trials_at, file)
    except PuzzleError as why:
        raise OwnPuzzleError(f"{where}: {why}") from None
    fields.done()
    return OwnPuzzle(puzzle, track.name, path, reference, wrong, trials, has_targets)
