"""`puzzles draw`: the picture of a solution, as its track draws it."""

from __future__ import annotations

import os
import shutil

import click

from puzzles.catalog.puzzle import Puzzle
from puzzles.sandbox.deadline import TIME_LIMIT
from puzzles.tracks import OptionError, track_of

from .params import Seconds, Slug


@click.command()
@click.argument("path", metavar="PATH", type=click.Path(exists=True))
@click.argument("puzzle", metavar="SLUG", type=Slug())
@click.option("-o", "output", metavar="FILE", help="Where to write: .svg, .html, .json or .txt  [default: SLUG.svg]")
@click.option("--text", is_flag=True, help="Print the run as text; no file, unless -o names one.")
@click.option("--width", type=int, help="Columns of the text  [default: the terminal's]")
@click.option("--critical", is_flag=True, help="Mark the critical path.")
@click.option("--against", metavar="PATH", type=click.Path(exists=True), help="Compare with a solution, side by side.")
@click.option("--pareto", is_flag=True, help="Plot memory against time, of a file or of a folder of attempts.")
@click.option("--dark", is_flag=True, help="Draw for dark slides.")
@click.option("--time-limit", type=Seconds(), default=TIME_LIMIT, show_default=True, help="Wall time for each run.")
@click.pass_context
def draw(
    ctx: click.Context, /, path: str, puzzle: Puzzle, output: str | None, text: bool, width: int | None,
    critical: bool, against: str | None, pareto: bool, dark: bool, time_limit: float,
) -> None:  # fmt: skip
    """Draw what a solution does: of a schedule when each rank works, waits and communicates; of a layout the plan.

    The format follows the ending: a picture, a page to explore, JSON for trace viewers, or text; a plan is a picture.
    A schedule that fails is drawn as far as it went; then the exit code is 1.
    """
    from lib import PuzzleError
    from puzzles.tracks.workbench import DrawOptions

    from .workbench import CommandWorkbench

    if os.path.isdir(path) and not pareto:
        raise click.UsageError(f"'{path}' is a directory; only --pareto takes a folder")
    if (against or pareto) and (text or (against and pareto)):
        raise click.UsageError("choose one of --text, --against and --pareto")
    if width is not None and not text:
        raise click.UsageError("--width is for --text")
    columns = width if width is not None else max(shutil.get_terminal_size().columns, 40)
    options = DrawOptions(output or "", text, columns, against or "", pareto, critical, dark)
    try:
        passed = track_of(puzzle.slug).draw(puzzle, options, CommandWorkbench(path, puzzle, time_limit))
    except (PuzzleError, OptionError) as why:
        raise click.UsageError(str(why)) from None
    ctx.exit(0 if passed else 1)
