"""`puzzles new`: begins a puzzle of your own."""

from pathlib import Path

import click

from puzzles.tracks import TRACKS

from .shared.params import usage_errors

KINDS = list(TRACKS)


@click.command()
@click.argument("name")
@click.option(
    "--track",
    type=click.Choice(KINDS),
    default=KINDS[0],
    show_default=True,
    help="What its solutions are: schedules, classes, layouts or plans.",
)
@click.option(
    "-o",
    "folder",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    default="my_puzzles",
    show_default=True,
    help="The folder of your puzzles.",
)
def new(name: str, track: str, folder: Path) -> None:
    """Begin a puzzle of your own, called NAME.

    Writes a TOML file with a small puzzle that works, its reference solution and two wrong ones. Replace what they
    say, then let 'puzzles check' find the targets and what is missing.
    """
    from puzzles.custom.writing import begin

    with usage_errors():
        written = begin(name, track, folder)
    click.echo("".join(f"Wrote {path}.\n" for path in written), nl=False)
    click.echo(f"Edit them, then: puzzles check {folder}")
