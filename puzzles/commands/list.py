"""`puzzles list`: the tracks with their puzzles and the player's stars; of one track or chapter the targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from puzzles.catalog.puzzle import Puzzle
from puzzles.catalog.text_lines import GLUE
from puzzles.reports.screen import next_command, print_wrapped
from puzzles.tracks import TRACKS, PuzzleGroup, Track, track_of
from puzzles.tracks.registry import before, mark

from .shared.params import GroupOrSlug, terminal

if TYPE_CHECKING:
    from rich.console import Console

    from puzzles.grading.progress import PuzzleProgress
    from puzzles.tracks.shown import Overview

MAX_BEFORE = 7
"""Puzzles in a list that leaves room on the screen for what comes before each."""

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
        raise click.UsageError(f"'{group.slug}' is a puzzle; '{next_command('show', group.slug)}' shows it")
    show_group(terminal(), group, load())


def show_tracks(console: Console, entries: Progress) -> None:
    """All tracks: the question of each, and a row for each chapter, so that all of them fit a screen."""
    from rich.table import Table

    from puzzles.reports.feedback import what_next

    for track in TRACKS.values():
        print_wrapped(console, f": {track.idea}{GLUE} {_stars(track.slugs, entries)} stars", lead=track.title)
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2))
        for group in track.groups if len(track.groups) > 1 else ():
            table.add_row(f"  {group.name}", group.title, _stars(group.slugs, entries))
        if table.rows:
            console.print(table)
    print_wrapped(console, what_next())
    print_wrapped(console, f"More: 'puzzles path', 'puzzles list {'|'.join(TRACKS)}|data'.")


def _stars(slugs: Sequence[str], entries: Progress) -> str:
    return f"{sum(entries[slug].stars for slug in slugs)} of {3 * len(slugs)}"


def show_group(console: Console, group: PuzzleGroup, entries: Progress) -> None:
    """A chapter: a row for each puzzle, with its targets. A track with several: their puzzles, without targets."""
    track = track_of(group.slugs[0])
    is_track = group.slugs == track.slugs
    print_wrapped(console, f": {group.idea}", lead=group.title)
    if is_track and track.form:
        print_wrapped(console, f"You write {track.form}.")
    if is_track and len(track.groups) > 1:
        _show_chapters(console, track, entries)
        return
    for track in dict.fromkeys(map(track_of, group.slugs)):
        slugs = [slug for slug in group.slugs if track_of(slug) is track]
        overview = track.overview(slugs)
        if overview is not None:
            _show_overview(console, overview)
        for slug in slugs if overview is None else ():
            _show_limits(console, track, slug, entries[slug])
    if len(group.slugs) <= MAX_BEFORE and (words := before(group.slugs)):
        print_wrapped(console, words)
    first, legend = group.slugs[0], "; *: core" if any(mark(slug) == "core" for slug in group.slugs) else ""
    show, start = next_command("show", first), next_command("start", group.name)
    print_wrapped(console, f"'{show}' shows one, '{start}' starts all{legend}.")


def _show_chapters(console: Console, track: Track[Any], entries: Progress) -> None:
    """The puzzles of each chapter, with the stars of those that were attempted."""
    from puzzles.reports.standings import stars_text

    core = any(mark(slug) == "core" for slug in track.slugs)
    for group in track.groups:
        slugs = [
            f"{_marked(slug)} {stars_text(console, e.stars)}" if e.attempts else _marked(slug)
            for slug, e in ((slug, entries[slug]) for slug in group.slugs)
        ]
        listed = f"{GLUE} ".join(slug.replace(" ", GLUE) for slug in slugs)
        if len(f"{group.name}  {group.title}  {listed}") <= console.width:
            print_wrapped(console, f"{GLUE} {group.title}{GLUE} {listed}", lead=group.name)
        else:
            print_wrapped(console, f"{GLUE} {group.title}", lead=group.name)
            print_wrapped(console, listed, indent="  ")
    titles = f"'{next_command('list', track.groups[0].name)}' has titles and targets"
    print_wrapped(console, f"{titles}; * is core, see '{next_command('path')}'." if core else f"{titles}.")


def _marked(slug: str) -> str:
    return f"{slug}*" if mark(slug) == "core" else slug


def _show_overview(console: Console, overview: Overview) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for column in overview.columns:
        table.add_column(column.heading, justify=column.justify, no_wrap=column.no_wrap, style=column.style)
    for row in overview.rows:
        table.add_row(*(_marked(cell) if mark(cell) else cell for cell in row))
    console.print()
    console.print(table)
    console.print()
    for line in overview.notes:
        print_wrapped(console, line)


def _show_limits(console: Console, track: Track[Any], slug: str, entry: PuzzleProgress) -> None:
    from puzzles.reports.standings import stars_text

    puzzle = track.puzzle(slug)
    stars = f"{GLUE} {stars_text(console, entry.stars)}" if entry.attempts else ""
    print_wrapped(console, f"{GLUE} {puzzle.title}{stars}", lead=_marked(slug))
    print_wrapped(console, track.listed_limits(puzzle), "dim", "  ")
