"""`puzzles list`, `path`, `status` and `reset`: tracks, chapters and the core path, with the player's stars.

All puzzles are listed by chapters, so that the list fits a screen; only a chapter has titles and targets. The time that
the core path takes is an estimate from words and lines, and says so. Rejected: one list of all puzzles, which nobody
reads to its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from puzzles.catalog.content import content, puzzle_files
from puzzles.catalog.path import CORE, PATH, PathStep, known
from puzzles.catalog.puzzle import Puzzle
from puzzles.judge.progress import PuzzleProgress, forget, load, next_slug, solved_slugs
from puzzles.screens.feedback import what_next
from puzzles.text_lines import GLUE, MAX_WIDTH, next_command, print_table, print_wrapped, wrapped
from puzzles.tracks import TRACKS, PuzzleGroup, Track, before, mark, reference_file, track_of

from .params import terminal
from .puzzle_params import SLUGS, group_or_puzzle

if TYPE_CHECKING:
    from rich.console import Console


MAX_BEFORE = 7
"""Puzzles in a list that leaves room on the screen for what comes before each."""

Progress = Mapping[str, "PuzzleProgress"]


@click.command("list")
@click.argument("group", metavar="[TRACK|CHAPTER]", type=group_or_puzzle, required=False)
def list_(group: PuzzleGroup | Puzzle | None) -> None:
    """List the puzzles with your stars.

    With a track or chapter: list its puzzles with their titles and targets.
    """
    if group is None:
        return show_tracks(terminal(), load())
    if not isinstance(group, PuzzleGroup):
        raise click.UsageError(f"'{group.slug}' is a puzzle; '{next_command('show', group.slug)}' shows it")
    show_group(terminal(), group, load())


def show_tracks(console: Console, entries: Progress) -> None:
    """The question of each track, and a row for each chapter, so that all of them fit a screen."""
    from rich.table import Table

    for track in TRACKS.values():
        print_wrapped(console, f": {track.idea}{GLUE} {_stars(track.slugs, entries)} stars", lead=track.title)
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2))
        for group in track.groups if len(track.groups) > 1 else ():
            table.add_row(f"  {group.name}", group.title, _stars(group.slugs, entries))
        if table.rows:
            print_table(console, table)
    print_wrapped(console, what_next())
    print_wrapped(console, f"More: 'puzzles path', 'puzzles list {'|'.join(TRACKS)}|data'.")


def _stars(slugs: Sequence[str], entries: Progress) -> str:
    return f"{sum(entries[slug].stars for slug in slugs)} of {3 * len(slugs)}"


def show_group(console: Console, group: PuzzleGroup, entries: Progress) -> None:
    """A chapter: a row for each puzzle, with its targets. A track with several: their puzzles, without targets."""
    track = track_of(group.slugs[0])
    is_track = group.slugs == track.slugs
    print_wrapped(console, f": {group.idea}", lead=group.title)
    if is_track and track.words.form:
        print_wrapped(console, f"You write {track.words.form}.")
    if is_track and len(track.groups) > 1:
        _show_chapters(console, track, entries)
        return
    for track in dict.fromkeys(map(track_of, group.slugs)):
        slugs = [slug for slug in group.slugs if track_of(slug) is track]
        if track.listing is not None and track.words.overview_columns:
            _show_overview(console, track, slugs)
        else:
            for slug in slugs:
                _show_limits(console, track, slug, entries[slug])
    if len(group.slugs) <= MAX_BEFORE and (words := before(group.slugs)):
        print_wrapped(console, words)
    first, legend = group.slugs[0], "; *: core" if any(mark(slug) == "core" for slug in group.slugs) else ""
    show, start = next_command("show", first), next_command("start", group.name)
    print_wrapped(console, f"'{show}' shows one, '{start}' starts all{legend}.")


def _show_chapters(console: Console, track: Track[Any], entries: Progress) -> None:
    from puzzles.screens.standings import stars_text

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


def _show_overview(console: Console, track: Track[Any], slugs: Sequence[str]) -> None:
    """A table of a chapter's puzzles, and a line below it."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("puzzle", no_wrap=True, style="bold")
    table.add_column("title")
    for heading in track.words.overview_columns:
        table.add_column(heading, justify="right", no_wrap=True)
    puzzles = list(map(track.puzzle, slugs))
    for puzzle in puzzles:
        table.add_row(_marked(puzzle.slug), puzzle.title, *track.words.overview_cells(puzzle))
    console.print()
    print_table(console, table)
    console.print()
    print_wrapped(console, track.words.overview_note(puzzles))


def _show_limits(console: Console, track: Track[Any], slug: str, entry: PuzzleProgress) -> None:
    from puzzles.screens.standings import stars_text

    puzzle = track.puzzle(slug)
    stars = f"{GLUE} {stars_text(console, entry.stars)}" if entry.attempts else ""
    print_wrapped(console, f"{GLUE} {puzzle.title}{stars}", lead=_marked(slug))
    print_wrapped(console, track.words.listed_limits(puzzle), "dim", "  ")


TITLE = 2 + max(len(step.title) for step in PATH)


READ, WRITTEN = 100, 2
"""Words read in a minute, and minutes for a line that is written and made to work. Nobody was timed."""


def effort() -> tuple[int, int]:
    """What the core path asks for: words of statements and backgrounds, and lines of code that the references have more
    than the starters."""
    words = lines = 0
    for (_, _, slug), name in puzzle_files().items():
        reference = reference_file(slug) if slug in CORE else None
        if reference is not None:
            said = content()[name]
            words += sum(len(said[text].split()) for text in ("statement", "concept", "in_practice"))
            lines += _code_lines(reference.read_text(encoding="utf-8")) - _code_lines(said["starter"])
    return words, lines


def _code_lines(source: str) -> int:
    return sum(bool(line.strip()) and not line.strip().startswith("#") for line in source.splitlines())


def _places(step: PathStep) -> str:
    """The places of a step's puzzles on the path: '3-5', '9'."""
    first, last = (CORE.index(slug) + 1 for slug in (step.slugs[0], step.slugs[-1]))
    return f"{first}-{last}" if first < last else str(first)


@click.command()
def path() -> None:
    """Show the core path, and what you have done of it."""
    from rich.text import Text

    from puzzles.screens.standings import stars_text

    console, entries = terminal(), load()
    solved = solved_slugs(entries)
    done = known(solved)

    def stop(slug: str) -> str:
        if entries[slug].attempts:
            return f"{slug} {stars_text(console, entries[slug].stars)}"
        return f"{slug} (known)" if slug in done else slug

    print_wrapped(console, f": {len(done & set(CORE))} of {len(CORE)} puzzles are done.", lead="The core path")
    for step in PATH:
        lead, *rest = (f"{_places(step):<7}{step.title:<{TITLE}}", *[" " * (TITLE + 7)] * len(step.slugs))
        stops = f"{GLUE} ".join(stop(slug).replace(" ", GLUE) for slug in step.slugs)
        for margin, line in zip((lead, *rest), wrapped(stops, min(console.width, MAX_WIDTH) - len(lead)).splitlines()):
            console.print(Text(margin + line), soft_wrap=True)
    print_wrapped(console, f"The other puzzles are optional: '{next_command('list')}'.", "dim")
    if set(CORE) - solved:
        print_wrapped(
            console,
            "You can start anywhere: when you solve a puzzle, everything before it counts as known.",
            "dim",
        )
        words, lines = effort()
        hours = round(words / READ / 60 + lines * WRITTEN / 60)
        print_wrapped(
            console,
            f"The whole path takes about {hours} hours. This is an estimate: {round(words, -2):,} words to read, at "
            f"{READ} a minute, and {round(lines, -1)} lines to write, at {WRITTEN} minutes each.",
            "dim",
        )
    opens = f" '{next_command('next')}' opens it." if next_slug(entries) else ""
    print_wrapped(console, f"{what_next()}{opens}")


@click.command()
def status() -> None:
    """Show your stars, and what to try next."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from puzzles.screens.standings import stars_text

    console, entries = terminal(), load()
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("puzzle", "stars", "attempts", "hints", "best"):
        table.add_column(
            heading, justify="right" if heading in ("attempts", "hints") else "left", no_wrap=heading != "best"
        )
    begun = {slug: entry for slug, entry in entries.items() if entry.attempts or entry.hints}
    for slug, e in begun.items():
        track = track_of(slug)
        puzzle = track.puzzle(slug)
        best = ", ".join(f"{measure.value_text} {measure.words}" for measure in track.words.measures(puzzle, e.figures))
        stars = stars_text(console, e.stars) if e.attempts else ""
        table.add_row(slug, stars, str(e.attempts), f"{e.hints} of {len(puzzle.hints)}", best if e.figures else "")
    if begun:
        print_table(console, table)
    for track in TRACKS.values():
        print_wrapped(console, f"{track.title}: {_stars(track.slugs, entries)} stars.")
    unbeaten = next_slug(entries, after=next(iter(entries)), stars=3)
    if next_slug(entries) is not None:
        print_wrapped(console, what_next())
    elif unbeaten is not None:
        print_wrapped(
            console, f"You have met every target. For a third star, try {unbeaten}: a better solution is known."
        )
    else:
        print_wrapped(console, "You have every star. Can you beat a record?")


@click.command()
@click.argument("slugs", metavar="[SLUG|TRACK|CHAPTER]", type=SLUGS, required=False)
@click.option("--yes", is_flag=True, help="Do not ask.")
def reset(slugs: tuple[str, ...] | None, yes: bool) -> None:
    """Forget your progress. Your files are not touched.

    With a name: forget only that puzzle, or the puzzles of that track or chapter.
    """
    what = f"your progress in {', '.join(slugs)}" if slugs else "all your progress"
    if not yes:
        click.confirm(f"Forget {what}?", abort=True)
    forget(slugs or ())
    click.echo(f"Forgot {what}.")
