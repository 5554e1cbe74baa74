"""The option of every command that draws operations: what their colours show."""

from __future__ import annotations

import click

from puzzles.tracks.workbench import COLOURS

colour_option = click.option(
    "--colour",
    type=click.Choice(COLOURS),
    help="What the colours of operations show  [default: layer]",
)
