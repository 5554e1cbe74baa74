"""Parameters that several commands share: puzzles, seconds, bytes, limits, colours. Errors name the nearest value."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from math import isfinite
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lib import PuzzleError
from puzzles.catalog.puzzle import Puzzle
from puzzles.custom import OwnPuzzleError, add_folder, folders, remove_folder
from puzzles.reports.screen import FOLDERS
from puzzles.sandbox.limits import MIB, Limits
from puzzles.sandbox.visible_files import INSTALL_ROOT
from puzzles.tracks import (
    ALL,
    TRACKS,
    OptionError,
    PuzzleGroup,
    UnknownPuzzleError,
    find,
    find_group,
    find_several,
    near_group,
    track_of,
)
from puzzles.tracks.workbench import COLOURS

if TYPE_CHECKING:
    from rich.console import Console


C = TypeVar("C", bound=Callable[..., Any])

REFERENCES = INSTALL_ROOT / "solutions"


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turns the game's refusals inside the block into usage errors."""
    try:
        yield
    except (PuzzleError, OwnPuzzleError, OptionError, UnknownPuzzleError) as why:
        raise click.UsageError(str(why)) from None


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


def several(*options: Callable[[C], C]) -> Callable[[C], C]:
    """A decorator that adds options to a command, in their order."""

    def add(command: C) -> C:
        for option in reversed(options):
            command = option(command)
        return command

    return add


class Parsed(click.ParamType):  # type: ignore[type-arg]  # generic only in newer clicks
    """A parameter that a function reads; the function's error is the message."""

    def __init__(self, name: str, read: Callable[[Any], Any]) -> None:
        self.name = name
        self.read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self.read(value)
        except (ValueError, UnknownPuzzleError) as why:
            self.fail(str(why), param, ctx)


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


@partial(Parsed, "seconds")
def seconds_text(value: Any) -> float:
    """A positive number of seconds: 10, 0.5s."""
    try:
        seconds = float(str(value).removesuffix("s"))
    except ValueError:
        seconds = 0.0
    if not (isfinite(seconds) and 0 < seconds <= 10**6):
        raise ValueError(f"'{value}' is not a positive number of seconds; write 10 or 0.5")
    return seconds


@partial(Parsed, "size")
def bytes_text(value: Any) -> int:
    """A size as people write it: 65536, 64k, 512M, 2GiB."""
    if isinstance(value, int):
        return value
    found = re.fullmatch(r"(\d{1,15})\s*([kmg]?)(i?b)?", str(value).strip().lower())
    size = int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[found[2]] if found else 0
    if not 0 < size < 1 << 50:
        raise ValueError(f"'{value}' is not a size; write a number of bytes, or 64k, 512M, 2G")
    return size


def abandon_output() -> None:
    """Redirects standard output to the null device: flushing its buffer would fail again when the interpreter ends."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def terminal() -> Console:
    from rich.console import Console  # here, because '--json' and '--help' can do without

    return Console(highlight=False, markup=False, emoji=False)


def require_picture(colour: str | None, output: object, option: str = "-o") -> None:
    """Refuses a colour where nothing is drawn."""
    if colour and not output:
        raise click.UsageError(f"--colour is for the picture; name its file with {option}")


colour_option = click.option(
    "--colour",
    type=click.Choice(COLOURS),
    help="What to colour operations by  [default: layer]",
)


DEFAULT = Limits()
KINDS: dict[str, click.ParamType] = {  # type: ignore[type-arg]  # generic only in newer clicks
    "time": seconds_text,
    "memory": bytes_text,
    "output": bytes_text,
    "files": bytes_text,
    "processes": click.IntRange(1, 10_000),
}
"""What each limit is, by its name, in the order of the fields of `Limits`."""

DEFAULTS = (
    f"time={DEFAULT.seconds:g}s, memory={DEFAULT.memory // MIB}M, output={DEFAULT.output // MIB}M, "
    f"files={DEFAULT.files // MIB}M, processes={DEFAULT.processes}"
)


@partial(Parsed, "limit")
def limit_text(value: Any) -> tuple[str, Any]:
    """A limit with its value: time=10s."""
    name, _, text = value.partition("=")
    if name not in KINDS or not text:
        raise ValueError(f"'{value}' is not a limit; the limits are {DEFAULTS}")
    return name, KINDS[name].convert(text, None, None)  # click adds the option to a refusal


WORDS = f"A limit for each run; may be repeated.  [default: {DEFAULTS}]"

limit_option = click.option("--limit", "limits", metavar="time=10s", type=limit_text, multiple=True, help=WORDS)


def limits_from(options: Mapping[str, Any]) -> Limits:
    """The limits in a command's options; the last one counts where a limit is named twice."""
    chosen: dict[str, Any] = dict(zip(KINDS, DEFAULT)) | dict(options["limits"])
    return Limits(*chosen.values())
