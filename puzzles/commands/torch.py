"""`puzzles torch`: a schedule run by PyTorch, a process for each rank."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from puzzles.sandbox.deadline import TIME_LIMIT

from .import_ import imported
from .shared.colour_option import colour_option, require_picture
from .shared.game_options import game_options
from .shared.judged_run import judged_run
from .shared.params import Seconds, SlugText, usage_errors

if TYPE_CHECKING:
    from puzzles.pytorch.run import MeasuredRun, Scheduled

PATIENCE = 300.0
"""Seconds for PyTorch. Most of them are for importing it."""


@click.command()
@click.argument("path", metavar="PATH", type=click.Path(exists=True, dir_okay=False))
@click.argument("name", metavar="[SLUG]", required=False, type=SlugText())
@game_options
@click.option("--communication", is_flag=True, help="With the schedule's own messages; else PyTorch adds them.")
@click.option("-o", "output", metavar="FILE.svg", default="", help="Draw measured time above predicted time.")
@colour_option
@click.option(
    "--profile", "folder", metavar="FOLDER", type=click.Path(file_okay=False, path_type=Path),
    help="Record a step more with torch.profiler there, for 'puzzles profile'.",
)  # fmt: skip
@click.option("--time-limit", type=Seconds(), default=PATIENCE, show_default=True, help="Wall time for PyTorch.")
@click.pass_context
def torch(
    ctx: click.Context, /, path: str, name: str | None, communication: bool, output: str, colour: str | None,
    folder: Path | None, time_limit: float, **game: Any,
) -> None:  # fmt: skip
    """Run a pipeline with PyTorch (the extra 'torch'), and compare.

    Each rank is a process with the gloo backend, on the loopback interface. Its gradients are compared with those of
    one process. Exits with 0 if they are equal. PATH may be PyTorch's own .csv of an order, which takes no SLUG.
    """
    from lib import PuzzleError, Setting
    from puzzles.pytorch.run import Scheduled, missing, run_all

    if why := missing():
        raise click.UsageError(why)
    require_picture(colour, output)
    if name is None and not path.endswith(".csv"):
        raise click.UsageError("name the puzzle after the file, as in 'puzzles torch mine.py zb_h1'; a .csv needs none")
    if name is None:
        slug = title = Path(path).stem
        trace = imported(path, 1, Setting("parts"))[1]
    else:
        found, trace = judged_run(path, name, game, TIME_LIMIT)
        slug, title = found.slug, found.title
    try:
        scheduled = Scheduled.of(slug, trace, communication)
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        (measured,) = run_all([scheduled], time_limit, profile=folder)
    except PuzzleError as error:
        raise click.ClickException(f"{slug} was not run by PyTorch: {error}") from None
    except OSError as problem:
        raise click.UsageError(f"cannot write to {folder}: {problem.strerror or problem}") from None
    lines = _lines(scheduled, measured)
    click.echo(f"{title}\n" + "\n".join(lines))
    if output:
        _draw(output, title, lines, scheduled, measured, colour or "layer")
        click.echo(f"Wrote {output}.")
    if folder is not None:
        click.echo(f"Wrote {folder}/rank0.json and on; next: puzzles profile {folder}")
    ctx.exit(0 if measured.same else 1)


def _lines(scheduled: Scheduled, measured: MeasuredRun) -> list[str]:
    """What was run and measured, in sentences."""
    table = scheduled.pipeline.table
    how = "are those of one process" if measured.same else "DIFFER from those of one process"
    busy = [sum(end - start for start, end in cells.values()) / measured.seconds for cells in measured.cells]
    return [
        f"PyTorch ran {table.stages} stages, {table.batches} microbatches, on {table.ranks} processes (gloo, float64).",
        f"The gradients {how}: they differ by {measured.error:.1g} of the largest.",
        f"It took {1e3 * measured.seconds:.3g} ms; busy: "
        + ", ".join(f"rank {rank} {share:.0%}" for rank, share in enumerate(busy))
        + ".",
    ]


def _draw(output: str, title: str, lines: list[str], scheduled: Scheduled, measured: MeasuredRun, colour: str) -> None:
    import drawing
    from puzzles.pytorch.event_times import event_times

    times = event_times(scheduled, measured)
    with usage_errors():
        picture = drawing.draw_replay(scheduled.trace, times, title, lines, colour=colour, measured_first=True)
        drawing.save(picture, output)
