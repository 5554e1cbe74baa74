"""`puzzles run`: a solution on real tensors, compared with what the game predicts."""

from __future__ import annotations

from typing import Any

import click

from puzzles.catalog.puzzle import Puzzle
from puzzles.sandbox.deadline import TIME_LIMIT

from .shared.colour_option import colour_option, require_picture
from .shared.game_options import chosen, fold_option, game_options, game_track
from .shared.params import Seconds, SlugText, usage_errors


@click.command()
@click.argument("path", metavar="PATH", type=click.Path(exists=True, dir_okay=False))
@click.argument("name", metavar="SLUG", type=SlugText())
@game_options
@fold_option
@click.option(
    "--on",
    type=click.Choice(["inprocess", "mpi", "torch"]),
    default="inprocess",
    show_default=True,
    help="Run in this process; or one process per device, over MPI or PyTorch.",
)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", help="Where PyTorch computes.")
@click.option(
    "--through", type=click.Choice(["pipelining"]), help="Hand a pipeline to torch.distributed.pipelining, as CSV."
)
@click.option("-n", "ranks", type=click.IntRange(1, 64), help="Number of devices  [default: that of the puzzle]")
@click.option("--small", is_flag=True, help="Use small tensors of whole numbers.")
@click.option(
    "-o", "output", metavar="FILE.svg", default="", help="Draw predicted above measured time, or a folded run."
)
@colour_option
@click.option(
    "--tensors/--no-tensors", default=None, help="Run on tensors, or only judge  [default: tensors for a puzzle]"
)
@click.option("--time-limit", type=Seconds(), default=TIME_LIMIT, show_default=True, help="Wall time of the run.")
@click.pass_context
def run(
    ctx: click.Context, /, path: str, name: str, on: str, device: str, through: str | None, ranks: int | None,
    small: bool, output: str, colour: str | None, tensors: bool | None, time_limit: float, **game: Any,
) -> None:  # fmt: skip
    """Run a solution on real tensors.

    Memory, messages and bytes are measured and compared with what the game predicts, and the results with those of a
    single device. Exits with 0 if all agree.

    With --size or --costs: any function of the file, at any size, without targets. This shows what the run takes, and
    exits with 0 if it is correct; --tensors, --on, --small and -o run it on tensors too. With --fold, -o draws the run.
    """
    from puzzles.tracks.workbench import TensorOptions

    from .shared.workbench import CommandWorkbench

    if (device != "cpu" or through) and on != "torch":
        raise click.UsageError("--device and --through are for --on torch")
    if through:
        others = device != "cpu" or small or ranks is not None
        return _through_pipelining(ctx, path, name, output, colour, game, others)
    puzzle = chosen(name, game)
    require_picture(colour, output)
    folded = bool(game["fold"])
    on_tensors = on != "inprocess" or small or (bool(output) and not folded)
    if tensors is False and on_tensors:
        raise click.UsageError("--on, --small and -o are for a run on tensors; leave out --no-tensors")
    if folded and (tensors or on_tensors):
        raise click.UsageError("tensors need every rank, and --fold plays one replica; leave out --fold")
    if ranks is not None and not isinstance(puzzle, Puzzle):
        raise click.UsageError("-n is for a puzzle's own size; set layers, batches and ranks with --size L,B,R")
    options = TensorOptions(
        on,
        ranks,
        small,
        output,
        tensors if tensors is not None else on_tensors or None,
        colour or "layer",
        device,
    )
    track = game_track(puzzle)
    if tensors is not None and not track.runs_without_tensors:
        raise click.UsageError(f"{puzzle.slug} always works on tensors; --tensors and --no-tensors are for schedules")
    if on == "torch" and not track.runs_without_tensors:
        raise click.UsageError(
            f"{puzzle.slug} is judged with numpy; in your own program, launch(..., on='torch') runs a class on PyTorch"
        )
    with usage_errors():
        track.require_runnable(puzzle, options)
        passed = track.run_on_tensors(puzzle, options, CommandWorkbench(path, track, puzzle.slug, time_limit))
    ctx.exit(0 if passed else 1)


def _through_pipelining(
    ctx: click.Context, path: str, name: str, output: str, colour: str | None, game: dict[str, Any], more: bool
) -> None:
    """The same as `puzzles torch`."""
    from .torch import torch

    fold = game.pop("fold", None)
    if fold or more:
        raise click.UsageError("--through pipelining takes no --fold, --device, --small or -n")
    ctx.invoke(torch, path=path, name=name, output=output, colour=colour, **game)
