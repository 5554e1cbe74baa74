"""Parameters that several commands share: puzzles, seconds, bytes, limits, colours. Errors name the nearest value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from math import isfinite
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeVar

import click

from puzzles.reports.screen import FOLDERS
from puzzles.sandbox.limits import MIB, Limits
from puzzles.sandbox.visible_files import INSTALL_ROOT
from puzzles.tracks import (
    ALL,
    TRACKS,
    OptionError,
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


Command = TypeVar("Command", bound=click.Command)

REFERENCES = INSTALL_ROOT / "solutions"


@contextmanager
def usage_errors() -> Iterator[None]:
    """What is refused inside, in full sentences, becomes an error of usage."""
    try:
        yield
    except Exception as why:
        from lib import PuzzleError  # here, with the others, because most commands can do without
        from puzzles.course.roster import CourseError
        from puzzles.custom import OwnPuzzleError

        if isinstance(why, PuzzleError | CourseError | OwnPuzzleError | OptionError | UnknownPuzzleError):
            raise click.UsageError(str(why)) from None
        raise


def add_folders(ctx: click.Context, param: click.Parameter, paths: tuple[str, ...]) -> None:
    """Click's callback of --puzzles: adds the folders before other parameters look for puzzles, until the command
    ends."""
    from puzzles.custom import OwnPuzzleError, add_folder, folders, remove_folder

    ctx.meta[FOLDERS] = (*ctx.meta.get(FOLDERS, ()), *paths)
    for path in paths:
        before = folders()
        try:
            if (added := add_folder(path)) not in before:
                ctx.call_on_close(partial(remove_folder, added.path))
        except OwnPuzzleError as why:
            raise click.UsageError(str(why), ctx) from None


def with_own_puzzles(command: Command) -> Command:
    """The command, with an option for folders of puzzles."""
    words = "Add a folder of puzzles; may be repeated."
    command.params.append(
        click.Option(
            ["--puzzles"],
            metavar="FOLDER",
            multiple=True,
            is_eager=True,
            expose_value=False,
            callback=add_folders,
            help=words,
        )
    )
    return command


class Slug(click.ParamType):  # type: ignore[type-arg]  # generic only in newer clicks
    """A puzzle of any track, as `find` reads it."""

    name = "slug"

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Click's hook: what follows "Missing argument 'SLUG'."."""
        return "'puzzles list' shows the names of all puzzles."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return find(value)
        except UnknownPuzzleError as why:
            self.fail(str(why), param, ctx)


class SlugText(Slug):
    """The name of a puzzle, or of any schedule in free play; the command looks it up with its other options."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value


class SavedSlug(Slug):
    """A puzzle of a track whose runs can be saved and judged again."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        puzzle = super().convert(value, param, ctx)
        if not _is_saved(puzzle.slug):
            same = [slug for slug in ALL if slug.lower() == puzzle.slug.lower() and _is_saved(slug)]
            able = [track.name for track in TRACKS.values() if any(map(_is_saved, track.slugs))]
            advice = f"did you mean '{same[0]}'?" if same else f"there are traces of: {', '.join(able)}"
            self.fail(f"there are no traces of {puzzle.slug}, a puzzle of the track "
                      f"'{track_of(puzzle.slug).name}'; {advice}", param, ctx)  # fmt: skip
        return puzzle


def _is_saved(slug: str) -> bool:
    track = track_of(slug)
    return bool(track.saved_as(track.puzzle(slug)))


class Slugs(Slug):
    """The slugs of a puzzle, or of all puzzles of a track or chapter."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        try:
            return value if isinstance(value, tuple) else find_several(value)
        except UnknownPuzzleError as why:
            self.fail(str(why), param, ctx)


class GroupOrSlug(Slug):
    """A track or a chapter by its name, or a puzzle."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = find_group(value) if isinstance(value, str) else value
        if not found and near_group(value):
            try:
                return find(value)
            except UnknownPuzzleError:
                self.fail(f"there is no chapter '{value}'; did you mean '{near_group(value)}'?", param, ctx)
        return found or super().convert(value, param, ctx)


class SolutionPath(click.Path):
    """A path that exists. 'solutions' is the folder of the reference solutions, unless there is one of that name."""

    def __init__(self) -> None:
        super().__init__(exists=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        first, *rest = PurePath(value).parts or ("",)
        if first == REFERENCES.name and not Path(first).exists():
            value = str(REFERENCES.joinpath(*rest))
        return super().convert(value, param, ctx)


class Seconds(click.ParamType):  # type: ignore[type-arg]  # as above
    """A positive number of seconds: 10, 0.5s."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(str(value).removesuffix("s"))
        except ValueError:
            seconds = 0.0
        if not (isfinite(seconds) and 0 < seconds <= 10**6):
            self.fail(f"'{value}' is not a positive number of seconds", param, ctx)
        return seconds


class Bytes(click.ParamType):  # type: ignore[type-arg]  # as above
    """A size as people write it: 65536, 64k, 512M, 2GiB."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(\d{1,15})\s*([kmg]?)(i?b)?", str(value).strip().lower())
        size = int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[found[2]] if found else 0
        if not 0 < size < 1 << 50:
            self.fail(f"'{value}' is not a size; write a number of bytes, or 64k, 512M, 2G", param, ctx)
        return size


def terminal() -> Console:
    """A console for people: with colours only if it is a terminal."""
    from rich.console import Console  # here, because '--json' and '--help' can do without

    return Console(highlight=False, markup=False, emoji=False)


def require_picture(colour: str | None, output: object, option: str = "-o") -> None:
    """Refuses a colour where nothing is drawn."""
    if colour and not output:
        raise click.UsageError(f"--colour is for the picture; name its file with {option}")


colour_option = click.option(
    "--colour",
    type=click.Choice(COLOURS),
    help="What the colours of operations show  [default: layer]",
)


C = TypeVar("C", bound=Callable[..., Any])

DEFAULT = Limits()
KINDS: dict[str, click.ParamType] = {  # type: ignore[type-arg]  # generic only in newer clicks
    "time": Seconds(),
    "memory": Bytes(),
    "output": Bytes(),
    "files": Bytes(),
    "processes": click.IntRange(1, 10_000),
}
"""What each limit is, by its name, in the order of the fields of `Limits`."""

DEFAULTS = (
    f"time={DEFAULT.seconds:g}s, memory={DEFAULT.memory // MIB}M, output={DEFAULT.output // MIB}M, "
    f"files={DEFAULT.files // MIB}M, processes={DEFAULT.processes}"
)

OLD_WORDS = ("--time-limit", "--memory-limit", "--output-limit", "--file-limit", "--process-limit")
"""In the order of `KINDS`; for one release."""


class LimitText(click.ParamType):  # type: ignore[type-arg]  # as above
    """A limit with its value: time=10s."""

    name = "limit"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        name, _, text = value.partition("=")
        if name not in KINDS or not text:
            self.fail(f"'{value}' is not a limit; the limits are {DEFAULTS}", param, ctx)
        return name, KINDS[name].convert(text, param, ctx)


def limit_option(command: C) -> C:
    """Adds `--limit`, and the old words as hidden options."""
    for name, word in zip(KINDS, OLD_WORDS):
        command = click.option(word, f"limit_{name}", type=KINDS[name], hidden=True)(command)
    words = f"Limit of a run; may be repeated.  [default: {DEFAULTS}]"
    added: C = click.option("--limit", "limits", metavar="time=10s", type=LimitText(), multiple=True, help=words)(
        command
    )
    return added


def limits_from(options: Mapping[str, Any]) -> Limits:
    """The limits that the options of a command ask for; of a limit that is named twice, the last one."""
    chosen: dict[str, Any] = dict(zip(KINDS, DEFAULT))
    chosen |= {name: options[f"limit_{name}"] for name in KINDS if options[f"limit_{name}"] is not None}
    return Limits(*(chosen | dict(options["limits"])).values())
