"""Parameters that name puzzles, folders of puzzles and solutions. Errors name the nearest value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import click

from puzzles.catalog.puzzle import Puzzle
from puzzles.custom import OwnPuzzleError, add_folder, folders, remove_folder
from puzzles.reports.screen import FOLDERS
from puzzles.sandbox.visible_files import INSTALL_ROOT
from puzzles.tracks import (
    ALL,
    TRACKS,
    PuzzleGroup,
    UnknownPuzzleError,
    find,
    find_group,
    find_several,
    near_group,
    track_of,
)

from .params import Parsed

REFERENCES = INSTALL_ROOT / "solutions"


def add_folders(ctx: click.Context, paths: Sequence[str]) -> None:
    """Adds folders of puzzles until the command ends."""
    ctx.meta[FOLDERS] = (*ctx.meta.get(FOLDERS, ()), *paths)
    for path in paths:
        before = folders()
        try:
            if (added := add_folder(path)) not in before:
                ctx.call_on_close(partial(remove_folder, added.path))
        except OwnPuzzleError as why:
            raise click.UsageError(str(why), ctx) from None


class Slug(Parsed):
    """A parameter that names a puzzle, or what `read` finds by a name."""

    def __init__(self, read: Callable[[Any], Any] = find) -> None:
        super().__init__("slug", lambda value: read(value) if isinstance(value, str) else value)

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Click's hook: what follows "Missing argument 'SLUG'."."""
        return "'puzzles list' shows the names of all puzzles."


PUZZLE, SLUGS = Slug(), Slug(find_several)
SLUG_TEXT = Slug(str)
"""The name of a puzzle, or of any schedule in free play; the command looks it up with its other options."""


@Slug
def saved_puzzle(name: str) -> Puzzle:
    """A puzzle of a track whose runs can be saved and judged again."""
    puzzle = find(name)
    if not track_of(puzzle.slug).judge.is_saved:
        same = [slug for slug, track in ALL.items() if slug.lower() == puzzle.slug.lower() and track.judge.is_saved]
        able = [track.name for track in TRACKS.values() if track.judge.is_saved]
        advice = f"did you mean '{same[0]}'?" if same else f"there are traces of: {', '.join(able)}"
        track = track_of(puzzle.slug).name
        raise ValueError(f"there are no traces of {puzzle.slug}, a puzzle of the track '{track}'; {advice}")
    return puzzle


@Slug
def group_or_puzzle(name: str) -> PuzzleGroup | Puzzle:
    """A track or a chapter by its name, or a puzzle."""
    try:
        return find_group(name) or find(name)
    except UnknownPuzzleError:
        if near := near_group(name):
            raise ValueError(f"there is no chapter '{name}'; did you mean '{near}'?") from None
        raise


class SolutionPath(click.Path):
    """An existing path. Without a folder of that name, 'solutions' is the folder of the reference solutions."""

    def __init__(self) -> None:
        super().__init__(exists=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        first, *rest = PurePath(value).parts or ("",)
        if first == REFERENCES.name and not Path(first).exists():
            value = str(REFERENCES.joinpath(*rest))
        return super().convert(value, param, ctx)
