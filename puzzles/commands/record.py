"""`puzzles record`: takes over the entry of a leaderboard as a record."""

from __future__ import annotations

from pathlib import Path

import click

from .submit import figures


@click.command()
@click.argument("path", metavar="ENTRY.json", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def record(path: Path) -> None:
    """Take over an entry as a record of its puzzle.

    Judges it again, compares it with all known records, and files its trace where the puzzle's records are: in a clone
    of the game, or in your own folder of puzzles. From then on it decides the third star.
    """
    from puzzles.board.entry import EntryError, read_entry
    from puzzles.board.take_over import folder_for, take_over

    try:
        entry = read_entry(path)
        where = folder_for(entry)
        file = take_over(entry)
    except EntryError as why:
        raise click.ClickException(f"{path}: {why}") from None
    except OSError as why:
        raise click.ClickException(f"cannot write {where}: {why.strerror}; take records over in a clone") from None
    click.echo(f"Filed {file}: {entry.puzzle.slug}, {figures(entry)}, by {entry.name}.")
    click.echo(f"Commit it with {file.with_name('index.json')}.")
