"""`puzzles hint`: one hint at a time, from gentle to explicit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from puzzles.catalog.puzzle import Puzzle
from puzzles.reports.screen import next_command, print_wrapped

from .shared.params import Slug, terminal
from .show import print_paragraphs

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@click.argument("puzzle", metavar="SLUG", type=Slug())
@click.option("-n", "number", type=int, default=1, show_default=True, help="Which one, from gentle to explicit.")
def hint(puzzle: Puzzle, number: int) -> None:
    """Show a hint."""
    from puzzles.grading.progress import remember_hint

    if puzzle.hints and not 1 <= number <= len(puzzle.hints):
        raise click.UsageError(f"{puzzle.slug} has hints 1 to {len(puzzle.hints)}; there is no hint {number}")
    show_hint(terminal(), puzzle, number)
    remember_hint(puzzle.slug, number)


def show_hint(console: Console, puzzle: Puzzle, number: int, again: str = "") -> None:
    """Prints one hint, and how to get the next: `again`, or the command."""
    hints = puzzle.hints
    if not hints:
        return print_wrapped(console, f"{puzzle.slug} has no hints.")
    print_wrapped(console, f"{puzzle.title}, hint {number} of {len(hints)}", "bold")
    print_paragraphs(console, hints[number - 1], lead=False)
    following = f"'{next_command('hint', puzzle.slug, '-n', str(number + 1))}'"
    if number < len(hints):
        print_wrapped(console, f"Still stuck? {again or following}", "dim")
