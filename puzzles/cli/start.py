"""`puzzles start` and `next`: a file of starters, with the statement of each puzzle above its gap.

`notebook`: fresh copies of the notebooks, for Jupyter or marimo; only --force overwrites what a player has written.
"""

from collections.abc import Sequence
from pathlib import Path

import click

from puzzles.catalog.puzzle import Puzzle
from puzzles.failure import UnreadableError
from puzzles.judge.progress import add_own_file, known_file, load, next_slug
from puzzles.judge.starters import add_starters
from puzzles.screens.feedback import what_next
from puzzles.text_lines import next_command, print_wrapped
from puzzles.tracks import PuzzleGroup, default_slugs, track_of

from .params import terminal
from .puzzle_params import group_or_puzzle
from .show import show_statement

DEFAULT_FILE = "my_solutions.py"


@click.command()
@click.argument("wanted", metavar="[SLUG|TRACK|CHAPTER]", type=group_or_puzzle, required=False)
@click.option("-o", "output", metavar="FILE", help="Where to write  [default: my_solutions.py, or my_NAME.py]")
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
def start(wanted: PuzzleGroup | Puzzle | None, output: str | None, force: bool) -> None:
    """Write starters to a file.

    Writes the starter of one puzzle, or of each puzzle in a track or chapter; by default, of the classic schedules. If
    the file exists, only missing starters are added.
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
    """Adds the missing starters to a file and returns their slugs; `force` overwrites the file. From now on it counts
    as the player's own."""
    try:
        added = add_starters([track_of(slug).puzzle(slug) for slug in slugs], path, force)
    except UnreadableError as why:
        raise click.UsageError(str(why)) from None
    except OSError as why:
        raise click.UsageError(f"cannot write {path}: {why.strerror}") from None
    add_own_file(path)
    return added


@click.command("next")
@click.option(
    "-o",
    "path",
    metavar="FILE",
    help=f"Where to add its starter  [default: {DEFAULT_FILE}; if there is none, your latest file here]",
)
def next_(path: str | None) -> None:
    """Open the next puzzle of the core path.

    Adds its starter to FILE, which is created if it does not exist. Nothing in FILE is overwritten.
    """
    console, slug = terminal(), next_slug(load())
    if slug is None:
        return print_wrapped(console, what_next())
    if path is None:
        path = DEFAULT_FILE if Path(DEFAULT_FILE).exists() else known_file(Path.cwd()) or DEFAULT_FILE
    added = add_to(path, [slug])
    show_statement(console, track_of(slug).puzzle(slug))
    console.print()
    watch = next_command("watch", path)
    where = f"Its starter is now in {path}." if added else f"{path} has a definition of {slug} already."
    print_wrapped(console, f"{where} '{watch}' grades the file on every save; there, n goes on to the next puzzle.")


# --- Notebooks ---


OPENED_BY = {"jupyter": "jupyter lab", "marimo": "marimo edit"}


@click.command()
@click.argument("folder", metavar="[DIR]", type=click.Path(file_okay=False, path_type=Path), default=".")
@click.option("--solved", is_flag=True, help="For teachers: fill in the reference solutions.")
@click.option(
    "--format", "form", type=click.Choice(["jupyter", "marimo"]), default="jupyter", show_default=True,
    help="The program that opens them.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite notebooks that exist.")
def notebook(folder: Path, solved: bool, form: str, force: bool) -> None:
    """Write the notebooks, to play in Jupyter or marimo.

    Writes to DIR, by default the current folder. Existing files are kept unless you add --force.
    """
    from puzzles.player.authoring import MissingPackageError, as_marimo, books

    try:
        made = [as_marimo(book) for book in books(solved)] if form == "marimo" else books(solved)
    except MissingPackageError as why:
        raise click.ClickException(str(why)) from None
    paths = {folder / book.file: book.text for book in made}
    try:
        there = [str(path) for path in paths if path.exists()]
        if there and not force:
            raise click.UsageError(
                f"{' and '.join(there)} {'exists' if len(there) == 1 else 'exist'} already and may contain your work; "
                "name another folder, or overwrite with --force"
            )
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in paths.items():
            path.write_text(text, encoding="utf-8", newline="\n")
            if not solved:
                add_own_file(path)
    except OSError as why:
        raise click.UsageError(f"cannot write {why.filename}: {why.strerror}") from None
    click.echo(f"Wrote {' and '.join(map(str, paths))}. Open them with: {OPENED_BY[form]} {folder}")
