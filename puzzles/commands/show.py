"""The pages of the catalogs for a terminal: the list, one puzzle, what is behind it, a hint."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from puzzles.grading.progress import Entry, next_slug
from puzzles.reports.terminal import stars_text
from puzzles.tracks import TRACKS, Part, track_of

WIDEST = 88
"""Columns of running text: wider is harder to read."""


def show_list(console: Console, entries: Mapping[str, Entry]) -> None:
    """All tracks and their chapters: the idea of each, its puzzles with the stars that the player has."""
    for track in TRACKS.values():
        parts = track.parts
        console.print()
        whole = sum(entries[slug].stars for slug in track.slugs)
        console.print(Text.assemble((track.title, "bold"), (f"  {whole} of {3 * len(track.slugs)} stars", "dim")))
        console.print(Text(_sentence(track.idea)), width=min(console.width, WIDEST))
        for part in parts:
            if len(parts) > 1:
                console.print(Text.assemble("\n  ", (f"{part.title} ", "bold"), (f"({part.name}): {part.idea}", "dim")),
                              width=min(console.width, WIDEST))  # fmt: skip
            words = [
                f"{slug} {stars_text(console, e.stars)}" if (e := entries[slug]).attempts else slug
                for slug in part.slugs
            ]
            indented = fill("   ".join(word.replace(" ", "\0") for word in words), min(console.width, WIDEST) - 2,
                            initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)  # fmt: skip
            console.print(Text(indented.replace("\0", " ")))
    console.print()
    following = next_slug(entries)
    if following is not None:
        track = track_of(following)
        puzzle = track.puzzle(following)
        told = (
            f"Next is {track.called(puzzle)}, {puzzle.title}: 'puzzles start {following}', 'puzzles show {following}'."
        )
        console.print(Text(told), width=min(console.width, WIDEST))
    console.print(Text(f"Targets and titles: 'puzzles list {'|'.join(TRACKS)}', or a chapter's name."))


def show_part(console: Console, part: Part, entries: Mapping[str, Entry]) -> None:
    """A track or a chapter: a row for each puzzle, with its targets."""
    console.print(Text(part.title, style="bold"))
    console.print(Text(_sentence(part.idea)), width=min(console.width, WIDEST))
    if part.slugs == TRACKS["schedule"].slugs:
        _schedules(console, part)
        return
    for slug in part.slugs:
        track = track_of(slug)
        puzzle, entry = track.puzzle(slug), entries[slug]
        console.print()
        stars = f"  {stars_text(console, entry.stars)}" if entry.attempts else ""
        console.print(Text.assemble((slug, "bold"), f"  {puzzle.title}{stars}"))
        width = min(console.width, WIDEST)
        limits = fill(track.limits(puzzle), width, initial_indent="    ", subsequent_indent="    ")
        console.print(Text(limits, style="dim"))
    console.print(f"\nBegin with 'puzzles start {part.name}', then 'puzzles show {part.slugs[0]}'.")


def _schedules(console: Console, part: Part) -> None:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("#", justify="right")
    table.add_column("puzzle", no_wrap=True, style="bold")
    table.add_column("title")
    for heading in ("L", "B", "R", "time", "memory"):
        table.add_column(heading, justify="right", no_wrap=True)
    for p in map(TRACKS["schedule"].puzzle, part.slugs):
        row = (str(p.number), p.slug, p.title, *map(str, p.goal.size), str(p.goal.time), f"{p.goal.memory:,}")
        table.add_row(*row)
    console.print(table)
    console.print("L, B, R: layers, batches, ranks. Targets: timesteps; peak memory in elements.")
    console.print("Begin with 'puzzles start', then 'puzzles show basic'.")


def show_statement(console: Console, puzzle: Any) -> None:
    """Title, size, targets, statement."""
    track = track_of(puzzle.slug)
    console.print(Text(track.heading(puzzle), style="bold"))
    console.print(Text(track.limits(puzzle)), width=min(console.width, WIDEST))
    _paragraphs(console, puzzle.statement)


def show_puzzle(console: Console, puzzle: Any) -> None:
    """Statement, targets, the calls to use, and the starter."""
    show_statement(console, puzzle)
    width = min(console.width, WIDEST)
    track, slug = track_of(puzzle.slug), puzzle.slug
    for section in track.sections(puzzle):
        _heading(console, section.title)
        for line, meaning in section.lines:
            console.print(Text(line, style="cyan" if meaning else ""), soft_wrap=True)
            if meaning:
                console.print(Text(fill(meaning, width, initial_indent="    ", subsequent_indent="    ")))
    _heading(console, "Starter")
    _code(console, puzzle.starter)
    console.print(f"'puzzles start {slug}' writes this to a file, 'puzzles hint {slug}' gives a hint,")
    console.print(f"'puzzles show {slug} --about' tells what is behind it.")


def show_background(console: Console, puzzle: Any) -> None:
    """The concept, what real systems do, and the sources."""
    track = track_of(puzzle.slug)
    heading = track.heading(puzzle)
    called = track.called(puzzle)
    console.print(Text(f"Behind {called}{heading[len(called) :]}", style="bold"))
    _paragraphs(console, puzzle.concept)
    for title, text in (("In practice", puzzle.in_practice), *track.background(puzzle)):
        _heading(console, title)
        _paragraphs(console, text, lead=False)
    _heading(console, "Sources")
    for source in track.sources(puzzle):
        console.print(Text(source), width=min(console.width, WIDEST))


def show_hint(console: Console, puzzle: Any, number: int) -> None:
    """One hint, and how to get the next."""
    hints = puzzle.hints
    console.print(Text(f"{puzzle.title}, hint {number} of {len(hints)}", style="bold"))
    _paragraphs(console, hints[number - 1], lead=False)
    if number < len(hints):
        console.print(Text(f"Still stuck? 'puzzles hint {puzzle.slug} -n {number + 1}'", style="dim"))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, style="bold"))


def _paragraphs(console: Console, text: str, lead: bool = True) -> None:
    for i, paragraph in enumerate(text.strip().split("\n\n")):
        if lead or i:
            console.print()
        # What is indented is code, line by line.
        shown = paragraph if paragraph.startswith("    ") else " ".join(paragraph.split())
        console.print(Text(shown), width=min(console.width, WIDEST))


def _code(console: Console, source: str) -> None:
    if console.is_terminal:
        from rich.syntax import Syntax  # here, because it is slow to import

        console.print(Syntax(source, "python", theme="ansi_dark", background_color="default"))
    else:
        console.print(Text(source), soft_wrap=True)
