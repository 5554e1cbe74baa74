"""`puzzles list`: the tracks with their puzzles and the player's stars; of one track or chapter the targets."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill
from typing import TYPE_CHECKING, Any

import click

from puzzles.catalog.puzzle import Puzzle
from puzzles.tracks import TRACKS, PuzzleGroup, Track, track_of
from puzzles.tracks.outcomes import capitalized

from .params import MAX_WIDTH, GroupOrSlug, terminal

if TYPE_CHECKING:
    from rich.console import Console

    from puzzles.grading.progress import PuzzleProgress
    from puzzles.tracks.base import Overview


@click.command("list")
@click.argument("group", metavar="[TRACK|CHAPTER]", type=GroupOrSlug(), required=False)
def list_(group: PuzzleGroup | Puzzle | None) -> None:
    """List the tracks with their puzzles and your stars; of one track or chapter, its puzzles with their targets."""
    from puzzles.grading.progress import load

    if group is None:
        return show_tracks(terminal(), load())
    if not isinstance(group, PuzzleGroup):
        raise click.UsageError(f"'{group.slug}' is a puzzle; 'puzzles show {group.slug}' tells it")
    show_group(terminal(), group, load())


def show_tracks(console: Console, entries: Mapping[str, PuzzleProgress]) -> None:
    """All tracks and their chapters: the idea of each, its puzzles with the stars that the player has."""
    from rich.text import Text

    from puzzles.grading.progress import next_slug

    for track in TRACKS.values():
        _show_track(console, track, entries)
    console.print()
    following = next_slug(entries)
    if following is not None:
        track = track_of(following)
        name = track.mention(track.puzzle(following))
        words = f"Next is {name}: 'puzzles start {following}', 'puzzles show {following}'."
        console.print(Text(words), width=min(console.width, MAX_WIDTH))
    console.print(Text(f"Targets and titles: 'puzzles list {'|'.join(TRACKS)}', or a chapter's name."))


def _show_track(console: Console, track: Track[Any], entries: Mapping[str, PuzzleProgress]) -> None:
    from rich.text import Text

    from puzzles.reports.terminal import stars_text

    width = min(console.width, MAX_WIDTH)
    console.print()
    whole = sum(entries[slug].stars for slug in track.slugs)
    console.print(Text.assemble((track.title, "bold"), (f"  {whole} of {3 * len(track.slugs)} stars", "dim")))
    console.print(Text(capitalized(track.idea)), width=width)
    for group in track.groups:
        if len(track.groups) > 1:
            title = Text.assemble("\n  ", (f"{group.title} ", "bold"), (f"({group.name}): {group.idea}", "dim"))
            console.print(title, width=width)
        words = [
            f"{slug} {stars_text(console, e.stars)}" if (e := entries[slug]).attempts else slug for slug in group.slugs
        ]
        indented = fill("   ".join(word.replace(" ", "\0") for word in words), width - 2,
                        initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)  # fmt: skip
        console.print(Text(indented.replace("\0", " ")))


def show_group(console: Console, group: PuzzleGroup, entries: Mapping[str, PuzzleProgress]) -> None:
    """A track or a chapter: a row for each puzzle, with its targets."""
    from rich.text import Text

    console.print(Text(group.title, style="bold"))
    console.print(Text(capitalized(group.idea)), width=min(console.width, MAX_WIDTH))
    track = track_of(group.slugs[0])
    overview = track.overview() if group.slugs == track.slugs else None
    if overview is not None:
        return _show_overview(console, overview)
    for slug in group.slugs:
        _show_limits(console, track, slug, entries[slug])
    console.print(f"\nBegin with 'puzzles start {group.name}', then 'puzzles show {group.slugs[0]}'.")


def _show_overview(console: Console, overview: Overview) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in overview.columns:
        table.add_column(column.heading, justify=column.justify, no_wrap=column.no_wrap, style=column.style)
    for row in overview.rows:
        table.add_row(*row)
    console.print(table)
    for line in overview.notes:
        console.print(line)


def _show_limits(console: Console, track: Track[Any], slug: str, entry: PuzzleProgress) -> None:
    from rich.text import Text

    from puzzles.reports.terminal import stars_text

    puzzle = track.puzzle(slug)
    console.print()
    stars = f"  {stars_text(console, entry.stars)}" if entry.attempts else ""
    console.print(Text.assemble((slug, "bold"), f"  {puzzle.title}{stars}"))
    width = min(console.width, MAX_WIDTH)
    limits = fill(track.limits(puzzle), width, initial_indent="    ", subsequent_indent="    ")
    console.print(Text(limits, style="dim"))
