"""`puzzles run`: a solution on real tensors, compared with what the game predicts."""

from __future__ import annotations

import click

from puzzles.catalog.puzzle import Puzzle
from puzzles.sandbox.deadline import TIME_LIMIT
from puzzles.tracks import OptionError, track_of

from .params import Slug


@click.command()
@click.argument("path", metavar="PATH", type=click.Path(exists=True, dir_okay=False))
@click.argument("puzzle", metavar="SLUG", type=Slug())
@click.option("--on", type=click.Choice(["inprocess", "mpi"]), default="inprocess", show_default=True, help="Where.")
@click.option("-n", "ranks", type=click.IntRange(1, 64), help="How many devices  [default: as many as the puzzle has]")
@click.option("--small", is_flag=True, help="Use small tensors of whole numbers.")
@click.option("-o", "output", metavar="FILE.svg", default="", help="Draw predicted above measured time.")
@click.pass_context
def run(ctx: click.Context, /, path: str, puzzle: Puzzle, on: str, ranks: int | None, small: bool, output: str) -> None:
    """Run a solution on real tensors, and compare with what the game predicts.

    Exits with 0 if the weights, the memory and the bytes are as predicted; of a layout, every tensor and the bytes.
    """
    from lib import PuzzleError
    from puzzles.tracks.workbench import TensorOptions

    from .workbench import CommandWorkbench

    track, options = track_of(puzzle.slug), TensorOptions(on, ranks, small, output)
    try:
        track.require_runnable(puzzle, options)
        passed = track.run_on_tensors(puzzle, options, CommandWorkbench(path, puzzle, TIME_LIMIT))
    except (PuzzleError, OptionError) as why:
        raise click.UsageError(str(why)) from None
    ctx.exit(0 if passed else 1)
