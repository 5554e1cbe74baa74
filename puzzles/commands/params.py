"""Parameter types of the command line: puzzles, seconds, bytes. Wrong words suggest the nearest right one."""

from __future__ import annotations

import re
from difflib import get_close_matches
from math import isfinite
from typing import TYPE_CHECKING, Any

import click

from puzzles.tracks import ALL, TRACKS, UnknownPuzzleError, find, find_group, find_several, near_group, track_of

if TYPE_CHECKING:
    from rich.console import Console

MAX_WIDTH = 88
"""Columns of running text: wider is harder to read."""


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
    """A puzzle of any track, as `find` reads it."""

    name = "slug"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return find(value)
        except UnknownPuzzleError as why:
            self.fail(str(why), param, ctx)


class SavedSlug(Slug):
    """A puzzle of a track whose runs can be saved and judged again."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        able = [track.name for track in TRACKS.values() if track.saved_as(track.puzzle(track.slugs[0]))]
        if isinstance(value, str) and ":" not in value and len(able) == 1:
            value = f"{able[0]}:{value}"
        puzzle = super().convert(value, param, ctx)
        if track_of(puzzle.slug).name not in able:
            self.fail(f"runs of {puzzle.slug} are not saved; there are those of: {', '.join(able)}", param, ctx)
        return puzzle


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
    """A console for people: with colours only if it is a terminal."""
    from rich.console import Console  # here, because '--json' and '--help' can do without

    return Console(highlight=False, markup=False, emoji=False)
