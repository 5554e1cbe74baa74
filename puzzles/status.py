"""`puzzles status` and `puzzles reset`: how far the player has come."""

from __future__ import annotations

import click

from .arguments import Slug, terminal
from .catalog import PUZZLES, Puzzle


@click.command()
def status() -> None:
    """Show your stars, attempts and hints, and what to try next."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from .progress import load
    from .report import stars_text

    console, entries = terminal(), load()
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("puzzle", "stars", "timesteps", "peak memory", "attempts", "hints"):
        table.add_column(heading, justify="left" if heading in ("puzzle", "stars") else "right", no_wrap=True)
    for slug, e in entries.items():
        steps = "-" if e.timesteps is None else f"{e.timesteps:g}"
        memory = "-" if e.peak_memory is None else f"{e.peak_memory:,}"
        stars = stars_text(console, e.stars) if e.attempts else ""
        table.add_row(slug, stars, steps, memory, str(e.attempts), f"{e.hints} of {len(PUZZLES[slug].hints)}")
    console.print(table)
    console.print(f"{sum(e.stars for e in entries.values())} of {3 * len(entries)} stars.")
    unsolved = next((slug for slug, e in entries.items() if e.stars < 2), None)
    unbeaten = next((slug for slug, e in entries.items() if e.stars < 3), None)
    if unsolved is not None:
        console.print(f"Next: puzzle {PUZZLES[unsolved].number}, {PUZZLES[unsolved].title}: 'puzzles show {unsolved}'.")
    elif unbeaten is not None:
        console.print(f"Both targets met everywhere. For a third star, try {unbeaten}: there is a better schedule.")
    else:
        console.print("Every star is yours. Can you find a schedule that beats a record?")


@click.command()
@click.argument("puzzle", metavar="[SLUG]", type=Slug(), required=False)
@click.option("--yes", is_flag=True, help="Do not ask.")
def reset(puzzle: Puzzle | None, yes: bool) -> None:
    """Forget your progress, in one puzzle or in all. Your files are not touched."""
    from .progress import forget

    what = f"your progress in {puzzle.slug}" if puzzle else "all your progress"
    if not yes:
        click.confirm(f"Forget {what}?", abort=True)
    forget(puzzle.slug if puzzle else None)
    click.echo(f"Forgot {what}.")
