"""`puzzles show`: a puzzle's statement, calls and starter, or the background of it."""

from __future__ import annotations

from textwrap import fill
from typing import TYPE_CHECKING

import click

from puzzles.catalog.puzzle import Puzzle
from puzzles.tracks import track_of

from .params import MAX_WIDTH, Slug, terminal

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@click.argument("puzzle", metavar="SLUG", type=Slug())
@click.option("--about", is_flag=True, help="Tell the idea behind it, what real systems do, and the sources.")
def show(puzzle: Puzzle, about: bool) -> None:
    """Show a puzzle: what to do, what to call, where to start."""
    (show_background if about else show_puzzle)(terminal(), puzzle)


def show_statement(console: Console, puzzle: Puzzle) -> None:
    """Title, size, targets, statement."""
    from rich.text import Text

    track = track_of(puzzle.slug)
    console.print(Text(track.heading(puzzle), style="bold"))
    console.print(Text(track.limits(puzzle)), width=min(console.width, MAX_WIDTH))
    print_paragraphs(console, puzzle.statement)


def show_puzzle(console: Console, puzzle: Puzzle) -> None:
    """Statement, targets, the calls to use, and the starter."""
    from rich.text import Text

    show_statement(console, puzzle)
    width = min(console.width, MAX_WIDTH)
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


def show_background(console: Console, puzzle: Puzzle) -> None:
    """The concept, what real systems do, and the sources."""
    from rich.text import Text

    track = track_of(puzzle.slug)
    console.print(Text(f"Behind {track.called(puzzle)}: {puzzle.title}", style="bold"))
    print_paragraphs(console, puzzle.concept)
    for title, text in (("In practice", puzzle.in_practice), *track.background(puzzle)):
        _heading(console, title)
        print_paragraphs(console, text, lead=False)
    _heading(console, "Sources")
    for source in track.sources(puzzle):
        console.print(Text(source), width=min(console.width, MAX_WIDTH))


def _heading(console: Console, text: str) -> None:
    from rich.text import Text

    console.print()
    console.print(Text(text, style="bold"))


def print_paragraphs(console: Console, text: str, lead: bool = True) -> None:
    """Prints paragraphs of plain Markdown, with an empty line before each; `lead` is for the one before the first."""
    from rich.text import Text

    for i, paragraph in enumerate(text.strip().split("\n\n")):
        if lead or i:
            console.print()
        # What is indented is code, line by line.
        shown = paragraph if paragraph.startswith("    ") else " ".join(paragraph.split())
        console.print(Text(shown), width=min(console.width, MAX_WIDTH))


def _code(console: Console, source: str) -> None:
    from rich.text import Text

    if console.is_terminal:
        from rich.syntax import Syntax  # here, because it is slow to import

        console.print(Syntax(source, "python", theme="ansi_dark", background_color="default"))
    else:
        console.print(Text(source), soft_wrap=True)
