"""`puzzles run`: a solution on real tensors, compared with what the game predicts."""

from pathlib import Path
from typing import Any

import click

from lib import Setting
from puzzles.catalog.puzzle import Puzzle
from puzzles.sandbox.limits import TIME_LIMIT
from puzzles.tracks import track_for
from puzzles.tracks.workbench import TensorOptions

from .export import imported
from .shared.game_options import FIELDS, chosen, game_options
from .shared.params import colour_option, require_picture, seconds_text, usage_errors
from .shared.puzzle_params import SLUG_TEXT

PATIENCE = 300.0
"""Seconds for PyTorch."""


@click.command()
@click.argument("path", metavar="PATH", type=click.Path(exists=True, dir_okay=False))
@click.argument("name", metavar="[SLUG]", required=False, type=SLUG_TEXT)
@game_options
@click.option(
    "--on",
    type=click.Choice(["inprocess", "mpi", "torch"]),
    default="inprocess",
    show_default=True,
    help="Run in this process, or in one process per device over MPI or PyTorch.",
)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", help="Where PyTorch computes.")
@click.option(
    "--through", type=click.Choice(["pipelining"]), help="Hand a pipeline to torch.distributed.pipelining, as CSV."
)
@click.option(
    "--communication", is_flag=True,
    help="With --through: use the schedule's own messages; by default PyTorch adds its own.",
)  # fmt: skip
@click.option(
    "--profile", "folder", metavar="FOLDER", type=click.Path(file_okay=False, path_type=Path),
    help="With --on torch: also write traces of torch.profiler to this folder, for 'puzzles profile'.",
)  # fmt: skip
@click.option("-n", "ranks", type=click.IntRange(1, 64), help="Number of devices  [default: as in the puzzle]")
@click.option("--small", is_flag=True, help="Use small tensors of whole numbers.")
@click.option(
    "--width", type=click.IntRange(16, 32_768), metavar="N",
    help="Size of a layer's matrix, a multiple of 16  [default: 512; on PyTorch so large that a product takes 1 ms]",
)  # fmt: skip
@click.option("-o", "output", metavar="FILE.svg", default="", help="Draw predicted above measured time.")
@colour_option
@click.option(
    "--tensors/--no-tensors", default=None, help="Run on tensors, or only judge  [default: tensors for a puzzle]"
)
@click.option(
    "--time-limit", type=seconds_text, help=f"Wall time of the run  [default: {TIME_LIMIT:g}; for PyTorch {PATIENCE:g}]"
)
@click.pass_context
def run(
    ctx: click.Context, /, path: str, name: str | None, on: str, device: str, through: str | None, communication: bool,
    folder: Path | None, ranks: int | None, small: bool, width: int | None, output: str, colour: str | None,
    tensors: bool | None, time_limit: float | None, **game: Any,
) -> None:  # fmt: skip
    """Run a solution on real tensors.

    Measures memory, messages and bytes, and compares them with the game's predictions; compares the results with a
    single device. The exit code is 0 if all agree. PATH may be a pipeline's .csv from PyTorch, without SLUG.

    With --size or --costs, plays any function in the file, at any size and without targets. The run's figures are
    shown, and the exit code is 0 if it is correct; --tensors, --on, --small and -o run it on tensors too.
    """
    from .shared.workbench import CommandWorkbench

    if on != "torch" and (device != "cpu" or through or folder):
        raise click.UsageError("--device, --through and --profile are for --on torch")
    if communication and not through:
        raise click.UsageError("--communication is for --through pipelining")
    if through and (small or device != "cpu"):
        raise click.UsageError("--through pipelining takes no --device or --small")
    if width is not None and (small or on == "mpi" or width % 16):
        raise click.UsageError("--width is a multiple of 16, and not for --small or --on mpi")
    require_picture(colour, output)
    on_tensors = on != "inprocess" or small or width is not None or bool(output)
    if tensors is False and on_tensors:
        raise click.UsageError("--on, --small and -o are for a run on tensors; leave out --no-tensors")
    options = TensorOptions(
        on, ranks, small, output, tensors if tensors is not None else on_tensors or None, colour or "layer", device,
        bool(through), communication, str(folder.resolve()) if folder else "", time_limit or PATIENCE,
        width or 0,
    )  # fmt: skip
    if path.endswith(".csv"):
        others = game["more"] or [field for field in FIELDS if field != "costs" and game[field] is not None]
        if name is not None or ranks is not None or tensors is False or others:
            raise click.UsageError("a .csv states its own size and name; of these options only --costs applies to it")
        puzzle, trace = _in_csv(path, game["costs"])
    elif name is None:
        raise click.UsageError("name the puzzle after the file, as in 'puzzles run mine.py zb_h1'; a .csv needs none")
    else:
        puzzle, trace = chosen(name, game), None
    if ranks is not None and not isinstance(puzzle, Puzzle):
        raise click.UsageError("-n is for a puzzle's own size; set layers, batches and ranks with --size L,B,R")
    track = track_for(puzzle)
    with usage_errors():
        track.show.require_runnable(puzzle, options)
    try:
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise click.UsageError(f"cannot write to {folder}: {problem.strerror or problem}") from None
    bench = CommandWorkbench(path, track, puzzle.slug, time_limit or TIME_LIMIT)
    with usage_errors():
        if trace is None:
            passed = track.show.run_on_tensors(puzzle, options, bench)
        else:
            from puzzles.tracks.free_play import replay_trace

            passed = replay_trace(puzzle.slug, puzzle.title, trace, options, bench)
    ctx.exit(0 if passed else 1)


def _in_csv(path: str, costs: Any) -> tuple[Any, Any]:
    from puzzles.tracks.free_play import FreeGame

    _, trace = imported(path, 1, Setting(costs or "parts"))
    return FreeGame(Path(path).stem, trace.size, trace.setting), trace
