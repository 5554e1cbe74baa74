"""`puzzles start`: a file of starters, with the statement of each puzzle above its gap."""

from __future__ import annotations

import click

from puzzles.catalog.puzzle import Puzzle
from puzzles.reports.next_command import next_command
from puzzles.tracks import PuzzleGroup, default_slugs, track_of

from .shared.params import GroupOrSlug


@click.command()
@click.argument("wanted", metavar="[SLUG|TRACK|CHAPTER]", type=GroupOrSlug(), required=False)
@click.option("-o", "output", metavar="FILE", help="Where to write  [default: my_solutions.py, or my_ and the name]")
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
def start(wanted: PuzzleGroup | Puzzle | None, output: str | None, force: bool) -> None:
    """Write a file to start from.

    It has the starter of one puzzle, or of all in a track or chapter; by default of the classic schedules.
    """
    from puzzles.grading.progress import add_own_file
    from puzzles.grading.starters import starter_file

    if wanted is None:
        name, slugs = "solutions", default_slugs()
    else:
        name, slugs = (wanted.name, wanted.slugs) if isinstance(wanted, PuzzleGroup) else (wanted.slug, (wanted.slug,))
    path = output or f"my_{name}.py"
    text = starter_file([track_of(slug).puzzle(slug) for slug in slugs], path)
    try:
        with open(path, "w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise click.UsageError(
            f"{path} exists already; choose another name with -o, or overwrite it with --force"
        ) from None
    except OSError as why:
        raise click.UsageError(f"cannot write {path}: {why.strerror}") from None
    add_own_file(path)
    click.echo(f"Wrote {path}. Write your solution between the two marks, then: {next_command('grade', path)}")
