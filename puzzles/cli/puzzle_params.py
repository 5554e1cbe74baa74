"""Parameters that name puzzles and folders, and the options of free play. Errors name the nearest.

Without options of free play, a name must be a puzzle's. With any of them, it is a function of the file: what the puzzle
of that name has holds wherever nothing is given, and what is the puzzle's own is that puzzle, with its targets.
Rejected: a command of its own for free play, which would repeat the options of draw, run and export.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import click

from lib import PuzzleError
from lib.ledger.named_costs import costs_named
from lib.ledger.setting import FIELDS as SETTING_FIELDS
from lib.ledger.setting import LAYERS, TASKS, costs_from_json
from puzzles.catalog.puzzle import Puzzle
from puzzles.custom import OwnPuzzleError, add_folder, folders, remove_folder
from puzzles.sandbox.visible_files import INSTALL_ROOT
from puzzles.text_lines import FOLDERS
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

from .params import Parsed, mesh_text, several, usage_errors

if TYPE_CHECKING:
    from puzzles.tracks.free_play import FreeGame


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


# --- Free play ---


FIELDS = ("size", "costs", "mesh", "steps", "layer", "task")
"""Names of the options."""

MORE = tuple(name for name in SETTING_FIELDS if name not in FIELDS)
"""Fields of a setting that have no option of their own."""

MAX_RECORD = 1 << 16
"""Bytes of a file with a cost record."""


@partial(Parsed, "L,B,R")
def size_text(value: Any) -> Any:
    """Layers, batches and ranks: 4,8,4."""
    return [int(part) if re.fullmatch(r"\s*\d{1,9}\s*", part) else part for part in value.split(",")]


@partial(Parsed, "NAME")
def costs_text(value: Any) -> Any:
    """Costs by name, or a file with a cost record."""
    try:
        if not value.endswith(".json"):
            return costs_named(value)
        with Path(value).open("rb") as file:
            return costs_from_json(json.loads(file.read(MAX_RECORD)))
    except PuzzleError as why:
        more = "" if value.endswith(".json") else "; 'puzzles costs' shows them all"
        raise ValueError(f"{why}{more}") from None
    except OSError as why:
        raise ValueError(f"cannot read {value}: {why.strerror or why}") from None
    except (ValueError, RecursionError) as why:
        raise ValueError(f"{value} is not a cost record in JSON: {why}") from None


@partial(Parsed, "FIELD=VALUE")
def field_text(value: Any) -> Any:
    """A field of a setting with its content: outer=4, clip=true, lengths=1,3/4."""
    name, _, content = value.partition("=")
    name, texts = name.strip(), [part.strip() for part in content.split(",")]
    if name not in MORE:
        raise ValueError(f"'{value}' is not a field of a setting with its content; the fields are {', '.join(MORE)}")
    if name == "kinds":
        return name, tuple(texts)
    if name in ("clip", "whole") and content in ("true", "false"):
        return name, content == "true"
    try:
        numbers = tuple(map(Fraction, texts))
    except (ValueError, ZeroDivisionError):
        wanted = "write true or false" if name in ("clip", "whole") else f"write numbers, such as {name}=1"
        raise ValueError(f"'{value}': {wanted}") from None
    whole = name not in ("lengths", "mix") and all(number.denominator == 1 for number in numbers)
    values: tuple[Any, ...] = tuple(map(int, numbers)) if whole else numbers
    return name, values if name in ("lengths", "frozen") or len(values) > 1 else values[0]


game_options = several(
    click.option("--size", metavar="L,B,R", type=size_text, help="Play at this size: layers, batches, ranks."),
    click.option(
        "--costs",
        metavar="NAME",
        type=costs_text,
        help="Play with these costs: a name from 'puzzles costs', or a .json file.",
    ),
    click.option("--mesh", metavar="AXIS=N,...", type=mesh_text, help="Place the ranks on a mesh, such as dp=2,pp=4."),
    click.option("--steps", metavar="N", type=click.IntRange(1, 10_000), help="Train for this number of steps."),
    click.option("--layer", type=click.Choice(LAYERS), help="The kind of layer."),
    click.option("--task", type=click.Choice(TASKS), help="Training, local SGD, an outer optimizer, or inference."),
    click.option(
        "--set", "more", metavar="FIELD=VALUE", type=field_text, multiple=True,
        help=f"Another field of the setting, such as outer=4; may be repeated: {', '.join(MORE)}.",
    ),
)  # fmt: skip


def chosen(name: str, options: Mapping[str, Any]) -> Puzzle | FreeGame:
    """The puzzle of this name, if the options are absent or the puzzle's own; else a game without targets."""
    given = {field: options[field] for field in FIELDS if options.get(field) is not None} | dict(
        options.get("more", ())
    )
    if not given:
        return _puzzle(name)
    from puzzles.tracks.free_play import game_of

    slug = name if name.isidentifier() else _puzzle(name).slug
    if "size" not in given and slug not in ALL:
        raise click.UsageError(
            f"there is no puzzle {name} to take the size from; add --size L,B,R, such as --size 4,8,4"
        )
    with usage_errors():
        return game_of(slug, given)


def puzzle_slugs(name: str) -> tuple[str, ...]:
    with usage_errors():
        return find_several(name)


def _puzzle(name: str) -> Puzzle:
    try:
        return find(name)
    except UnknownPuzzleError as why:
        more = "; with --size L,B,R it may be any schedule in the file" if name.isidentifier() else ""
        raise click.UsageError(f"{why}{more}") from None
