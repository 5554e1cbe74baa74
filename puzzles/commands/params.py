"""How the words of a command line are read: puzzles, seconds, bytes; wrong ones suggest the nearest right one."""

from __future__ import annotations

import re
from difflib import get_close_matches
from math import isfinite
from typing import TYPE_CHECKING, Any

import click

from puzzles.catalog.schedule import UnknownPuzzleError
from puzzles.tracks import ALL, find, find_part, find_several, near_part

if TYPE_CHECKING:
    from rich.console import Console


class Commands(click.Group):
    """A group that suggests the nearest command to a wrong one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            near = get_close_matches(name, self.commands, n=1, cutoff=0.5)
            if name in ALL:
                advice = f"did you mean 'puzzles show {name}'?"
            elif near:
                advice = f"did you mean '{near[0]}'?"
            else:
                advice = f"there are {', '.join(self.commands)}"
            ctx.fail(f"there is no command '{name}'; {advice}")
        return super().resolve_command(ctx, args)


class Slug(click.ParamType):  # type: ignore[type-arg]  # generic only in newer clicks
    """A puzzle of any track, as `find` reads it; or of one, if that is all that a command can do."""

    name = "slug"

    def __init__(self, track: str = "") -> None:
        self.track = track

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return find(f"{self.track}:{value}" if self.track and ":" not in value else value)
        except UnknownPuzzleError as why:
            self.fail(str(why), param, ctx)


class Slugs(Slug):
    """The slugs of a puzzle, or of all puzzles of a track or chapter."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        try:
            return value if isinstance(value, tuple) else find_several(value)
        except UnknownPuzzleError as why:
            self.fail(str(why), param, ctx)


class PartOrSlug(Slug):
    """A track or a chapter by its name, or a puzzle."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = find_part(value) if isinstance(value, str) else value
        if not found and near_part(value):
            try:
                return find(value)
            except UnknownPuzzleError:
                self.fail(f"there is no chapter '{value}'; did you mean '{near_part(value)}'?", param, ctx)
        return found or super().convert(value, param, ctx)


class Seconds(click.ParamType):  # type: ignore[type-arg]  # as above
    """A positive number of seconds."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(value)
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
    """Where people read: colours only if it is a terminal."""
    from rich.console import Console  # here, because '--json' and '--help' can do without

    return Console(highlight=False, markup=False, emoji=False)
