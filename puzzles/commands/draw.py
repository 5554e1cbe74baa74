"""`puzzles draw`: the picture of a solution, as its track draws it."""

import os
import shutil
from typing import Any

import click

from puzzles.sandbox.deadline import TIME_LIMIT

from .shared.game_options import chosen, fold_option, game_options, game_track
from .shared.params import Seconds, SlugText, SolutionPath, colour_option, usage_errors


@click.command()
@click.argument("path", metavar="PATH", type=click.Path(exists=True))
@click.argument("name", metavar="SLUG", type=SlugText())
@game_options
@fold_option
@click.option(
    "-o", "output", metavar="FILE", help="Where to write: .svg, .png, .pdf, .html, .json or .txt  [default: SLUG.svg]"
)
@click.option("--text", is_flag=True, help="Print the run as text; no file, unless -o names one.")
@click.option("--width", type=int, help="Columns of the text  [default: the terminal's]")
@click.option("--open", "opens", is_flag=True, help="Open what was written.")
@click.option("--critical", is_flag=True, help="Mark the critical path.")
@click.option(
    "--against",
    metavar="PATH",
    type=SolutionPath(),
    help="Compare with a solution, side by side; 'solutions' is the folder of the reference solutions.",
)
@click.option("--pareto", is_flag=True, help="Plot memory against time, of a file or of a folder of attempts.")
@click.option("--dark", is_flag=True, help="Draw for dark slides.")
@colour_option
@click.option("--time-limit", type=Seconds(), default=TIME_LIMIT, show_default=True, help="Wall time for each run.")
@click.pass_context
def draw(
    ctx: click.Context, /, path: str, name: str, output: str | None, text: bool, width: int | None, opens: bool,
    critical: bool, against: str | None, pareto: bool, dark: bool, colour: str | None, time_limit: float,
    **game: Any,
) -> None:  # fmt: skip
    """Draw a solution, as a picture or as text.

    Of a schedule: when each rank computes, waits and communicates. Of a layout: its plan.

    The ending of the file sets the format: a picture (.svg, .png, .pdf), a page to explore (.html), JSON for trace
    viewers, or text. Plans are pictures. A schedule that fails is drawn as far as it went, and the exit code is 1.

    With --size or --costs: any function of the file, at any size, without targets.
    """
    from puzzles.tracks.workbench import DrawOptions

    from .shared.workbench import CommandWorkbench

    if os.path.isdir(path) and not pareto:
        raise click.UsageError(f"'{path}' is a directory; only --pareto takes a folder")
    if (against or pareto) and (text or (against and pareto)):
        raise click.UsageError("choose one of --text, --against and --pareto")
    if opens and text and not output:
        raise click.UsageError("--open needs a file; leave out --text, or name a file with -o")
    if width is not None and not text:
        raise click.UsageError("--width is for --text")
    if colour and pareto:
        raise click.UsageError("--pareto has no operations to colour; leave out --colour")
    columns = width if width is not None else max(shutil.get_terminal_size().columns, 40)
    options = DrawOptions(output or "", text, columns, against or "", pareto, critical, dark, colour or "layer")
    puzzle = chosen(name, game)
    track = game_track(puzzle)
    with usage_errors():
        passed = track.draw(puzzle, options, CommandWorkbench(path, track, puzzle.slug, time_limit, opens))
    ctx.exit(0 if passed else 1)
