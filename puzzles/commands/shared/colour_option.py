"""The option of every drawing command for the meaning of colours."""

import click

from puzzles.tracks.workbench import COLOURS


def require_picture(colour: str | None, output: object, option: str = "-o") -> None:
    """Refuses a colour where nothing is drawn."""
    if colour and not output:
        raise click.UsageError(f"--colour is for the picture; name its file with {option}")


colour_option = click.option(
    "--colour",
    type=click.Choice(COLOURS),
    help="What the colours of operations show  [default: layer]",
)
