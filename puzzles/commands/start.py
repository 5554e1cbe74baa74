"""`puzzles start`: a file of starters, with the statement of each puzzle above its gap."""

from collections.abc import Sequence
from pathlib import Path

import click

from puzzles.catalog.puzzle import Puzzle
from puzzles.failure import UnreadableError
from puzzles.reports.screen import next_command
from puzzles.tracks import PuzzleGroup, default_slugs, track_of

from .shared.params import GroupOrSlug

DEFAULT_FILE = "my_solutions.py"


@click.command()
@click.argument("wanted", metavar="[SLUG|TRACK|CHAPTER]", type=GroupOrSlug(), required=False)
@click.option("-o", "output", metavar="FILE", help="Where to write  [default: my_solutions.py, or my_ and the name]")
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
def start(wanted: PuzzleGroup | Puzzle | None, output: str | None, force: bool) -> None:
    """Write a file to start from, or add to one.

    It has the starter of one puzzle, or of all in a track or chapter; by default of the classic schedules. To a file
    that exists, it adds the starters that are missing.
    """
    if wanted is None:
        name, slugs = "solutions", default_slugs()
    else:
        name, slugs = (wanted.name, wanted.slugs) if isinstance(wanted, PuzzleGroup) else (wanted.slug, (wanted.slug,))
    path = output or f"my_{name}.py"
    done = "Wrote" if force or not Path(path).exists() else "Added to"
    if not add_to(path, slugs, force):
        names = f"a definition of {slugs[0]}" if len(slugs) == 1 else "a definition of each of these puzzles"
        raise click.UsageError(f"{path} has {names} already; choose another file with -o, or overwrite it with --force")
    click.echo(f"{done} {path}. Write your solution between the two marks, then: {next_command('grade', path)}")


def add_to(path: str, slugs: Sequence[str], force: bool = False) -> list[str]:
    """Adds the missing starters to a file, which counts as the player's own from now on, and returns their slugs. With
    `force`, or where there is no file, it is written.
    """
    from puzzles.grading.progress import add_own_file
    from puzzles.grading.starters import add_starters

    try:
        added = add_starters([track_of(slug).puzzle(slug) for slug in slugs], path, force)
    except UnreadableError as why:
        raise click.UsageError(str(why)) from None
    except OSError as why:
        raise click.UsageError(f"cannot write {path}: {why.strerror}") from None
    add_own_file(path)
    return added
