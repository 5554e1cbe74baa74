"""`puzzles list`: the tracks with their puzzles and the player's stars; of one track or chapter the targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from puzzles.catalog.puzzle import Puzzle
from puzzles.reports.paragraphs import GLUE, say, wrapped
from puzzles.tracks import TRACKS, PuzzleGroup, Track, track_of
from puzzles.tracks.outcomes import capitalized

from .params import GroupOrSlug, terminal

if TYPE_CHECKING:
    from rich.console import Console

    from puzzles.grading.progress import PuzzleProgress
    from puzzles.tracks.base import Overview

Progress = Mapping[str, "PuzzleProgress"]


@click.command("list")
@click.argument("group", metavar="[TRACK|CHAPTER]", type=GroupOrSlug(), required=False)
def list_(group: PuzzleGroup | Puzzle | None) -> None:
    """List the puzzles with your stars.

    Of one track or chapter: its puzzles with their titles and targets.
    """
    from puzzles.grading.progress import load

    if group is None:
        return show_tracks(terminal(), load())
    if not isinstance(group, PuzzleGroup):
        raise click.UsageError(f"'{group.slug}' is a puzzle; 'puzzles show {group.slug}' shows it")
    show_group(terminal(), group, load())


def show_tracks(console: Console, entries: Progress) -> None:
    """All tracks: the question of each, and its puzzles by chapter."""
    from puzzles.reports.feedback import what_next

    for track in TRACKS.values():
        whole = sum(entries[slug].stars for slug in track.slugs)
        say(console, f": {track.idea}{GLUE} {whole} of {3 * len(track.slugs)} stars", lead=track.title)
        _show_chapters(console, track, entries)
        console.print()
    say(console, what_next())
    say(console, f"Titles and targets: 'puzzles list {'|'.join(TRACKS)}', or a chapter's name.")


def _show_chapters(console: Console, track: Track[Any], entries: Progress) -> None:
    """The slugs, one chapter per line; with the chapter's name if there are several. Where everybody starts with some
    chapters, the others are only named until they are begun."""
    from rich.text import Text

    later = [group for group in track.groups if _comes_later(track, group, entries)]
    shown = [group for group in track.groups if group not in later]
    names = [f"  {group.name}" if len(track.groups) > 1 else "" for group in shown]
    margin = max(map(len, names)) + 2
    for name, group in zip(names, shown):
        _show_slugs(console, group.slugs, entries, name.ljust(margin), " " * margin)
    if later:
        count = sum(len(group.slugs) for group in later)
        words = f"{count} puzzles in {', '.join(group.name for group in later)}"
        console.print(Text(wrapped(words, console.width, "  then".ljust(margin), " " * margin)), soft_wrap=True)


def _comes_later(track: Track[Any], group: PuzzleGroup, entries: Progress) -> bool:
    """True for a chapter that is not begun, if another one is what everybody starts with."""
    starts = any(map(track.is_default, track.slugs)) and not any(map(track.is_default, group.slugs))
    return starts and not any(entries[slug].attempts for slug in group.slugs)


def _show_slugs(console: Console, slugs: tuple[str, ...], entries: Progress, first: str, hanging: str) -> None:
    from rich.text import Text

    from puzzles.reports.terminal import stars_text

    words = [f"{slug} {stars_text(console, e.stars)}" if (e := entries[slug]).attempts else slug for slug in slugs]
    glued = f"{GLUE} ".join(word.replace(" ", GLUE) for word in words)
    console.print(Text(wrapped(glued, console.width, first, hanging)), soft_wrap=True)


def show_group(console: Console, group: PuzzleGroup, entries: Progress) -> None:
    """A track or a chapter: a row for each puzzle, with its targets; of a track with chapters, what each is about."""
    track = track_of(group.slugs[0])
    is_track = group.slugs == track.slugs
    say(console, group.title, "bold")
    say(console, capitalized(group.idea) + (f" You write {track.form}." if is_track and track.form else ""))
    if is_track and len(track.groups) > 1:
        _show_ideas(console, track, entries)
        return
    overview = track.overview(group.slugs)
    if overview is not None:
        _show_overview(console, overview)
    else:
        console.print()
        for slug in group.slugs:
            _show_limits(console, track, slug, entries[slug])
        console.print()
    first = group.slugs[0]
    say(console, f"'puzzles show {first}' shows the first; 'puzzles start {group.name}' writes a file with all.")


def _show_ideas(console: Console, track: Track[Any], entries: Progress) -> None:
    console.print()
    for group in track.groups:
        say(console, f": {group.idea}", lead=group.name)
        _show_slugs(console, group.slugs, entries, "  ", "  ")
    console.print()
    say(console, f"Titles and targets: 'puzzles list {track.groups[0].name}', or another chapter's name.")


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
        say(console, line)


def _show_limits(console: Console, track: Track[Any], slug: str, entry: PuzzleProgress) -> None:
    from puzzles.reports.terminal import stars_text

    puzzle = track.puzzle(slug)
    stars = f"{GLUE} {stars_text(console, entry.stars)}" if entry.attempts else ""
    say(console, f"{GLUE} {puzzle.title}{stars}", lead=slug)
    say(console, track.listed_limits(puzzle), "dim", "    ")
