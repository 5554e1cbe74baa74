"""The pages of the catalog for a terminal: the list, one puzzle, what is behind it, a hint."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import fill

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .catalog import Puzzle
from .reminder import reminder
from .starters import size_text

WIDEST = 88
"""Columns of running text: wider is harder to read."""


def show_list(console: Console, puzzles: Iterable[Puzzle]) -> None:
    """One row for each puzzle."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("#", justify="right")
    table.add_column("puzzle", no_wrap=True, style="bold")
    table.add_column("title")
    for heading in ("L", "B", "R", "time", "memory"):
        table.add_column(heading, justify="right", no_wrap=True)
    for p in puzzles:
        row = (str(p.number), p.slug, p.title, *map(str, p.goal.size), str(p.goal.time), f"{p.goal.memory:,}")
        table.add_row(*row)
    console.print(table)
    console.print("L, B, R: layers, batches, ranks. Targets: timesteps; peak memory in elements.")
    console.print("Begin with 'puzzles start', then 'puzzles show basic'.")


def show_statement(console: Console, puzzle: Puzzle) -> None:
    """Title, size, targets, statement."""
    goal = puzzle.goal
    console.print(Text(f"Puzzle {puzzle.number}: {puzzle.title}", style="bold"))
    console.print(f"{size_text(goal.size)}; targets: {goal.time} timesteps, {goal.memory:,} elements")
    _paragraphs(console, puzzle.statement)


def show_puzzle(console: Console, puzzle: Puzzle) -> None:
    """Statement, targets, the calls to use, and the starter."""
    show_statement(console, puzzle)
    _heading(console, "Calls")
    width = min(console.width, WIDEST)
    for call, meaning in reminder(puzzle.calls):
        console.print(Text(call, style="cyan"), width=width)
        console.print(Text(fill(meaning, width, initial_indent="    ", subsequent_indent="    ")))
    _heading(console, "Starter")
    _code(console, puzzle.starter)
    slug = puzzle.slug
    console.print(f"'puzzles start {slug}' writes this to a file, 'puzzles hint {slug}' gives a hint,")
    console.print(f"'puzzles show {slug} --about' tells what is behind it.")


def show_background(console: Console, puzzle: Puzzle) -> None:
    """The concept, what real systems do, and the sources."""
    console.print(Text(f"Behind puzzle {puzzle.number}: {puzzle.title}", style="bold"))
    _paragraphs(console, puzzle.concept)
    _heading(console, "In practice")
    _paragraphs(console, puzzle.in_practice, lead=False)
    _heading(console, "Sources")
    for source in (*map(str, puzzle.sources), puzzle.credit):
        console.print(Text(source), width=min(console.width, WIDEST))


def show_hint(console: Console, puzzle: Puzzle, number: int) -> None:
    """One hint, and how to get the next."""
    hints = puzzle.hints
    console.print(Text(f"{puzzle.title}, hint {number} of {len(hints)}", style="bold"))
    _paragraphs(console, hints[number - 1], lead=False)
    if number < len(hints):
        console.print(Text(f"Still stuck? 'puzzles hint {puzzle.slug} -n {number + 1}'", style="dim"))


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
