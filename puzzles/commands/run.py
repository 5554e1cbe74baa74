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
@click.option(
    "--on",
    type=click.Choice(["inprocess", "mpi"]),
    default="inprocess",
    show_default=True,
    help="Run in this process, or one process per device.",
)
@click.option("-n", "ranks", type=click.IntRange(1, 64), help="Number of devices  [default: that of the puzzle]")
@click.option("--small", is_flag=True, help="Use small tensors of whole numbers.")
@click.option("-o", "output", metavar="FILE.svg", default="", help="Draw predicted above measured time.")
@click.pass_context
def run(ctx: click.Context, /, path: str, puzzle: Puzzle, on: str, ranks: int | None, small: bool, output: str) -> None:
    """Run a solution on real tensors.

    Memory, messages and bytes are measured and compared with what the game predicts, and the results with those of a
    single device. Exits with 0 if all agree.
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
