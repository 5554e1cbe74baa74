"""`puzzles draw` and `compare`: the picture of a solution, as its track draws it, and the reference next to it."""

import os
import shutil
from pathlib import Path
from typing import Any

import click

from lib import PuzzleError
from puzzles.catalog.puzzle import Puzzle
from puzzles.judge.submission import Submission, source_of
from puzzles.sandbox.limits import TIME_LIMIT
from puzzles.tracks import OptionError, as_lines, differing_lines, reference_file, track_for, track_of
from puzzles.tracks.base import DrawOptions

from .params import colour_option, seconds_text, usage_errors
from .puzzle_params import PUZZLE, SLUG_TEXT, SolutionPath, chosen, game_options


@click.command()
@click.argument("path", metavar="PATH", type=click.Path(exists=True))
@click.argument("name", metavar="SLUG", type=SLUG_TEXT)
@game_options
@click.option(
    "-o", "output", metavar="FILE", help="Write to .svg, .png, .pdf, .html, .json or .txt  [default: SLUG.svg]"
)
@click.option("--text", is_flag=True, help="Print the run as text; write a file only if -o names one.")
@click.option("--width", type=int, help="Width of the text in columns  [default: the terminal's]")
@click.option("--open", "opens", is_flag=True, help="Open the file.")
@click.option("--critical", is_flag=True, help="Mark the critical path.")
@click.option(
    "--against",
    metavar="PATH",
    type=SolutionPath(),
    help="Draw the solution at PATH next to it; 'solutions' is the folder of the reference solutions.",
)
@click.option("--pareto", is_flag=True, help="Plot memory against time, for a file or a folder of attempts.")
@click.option("--dark", is_flag=True, help="Draw for dark slides.")
@colour_option
@click.option("--time-limit", type=seconds_text, default=TIME_LIMIT, show_default=True, help="Wall time for each run.")
@click.pass_context
def draw(
    ctx: click.Context, /, path: str, name: str, output: str | None, text: bool, width: int | None, opens: bool,
    critical: bool, against: str | None, pareto: bool, dark: bool, colour: str | None, time_limit: float,
    **game: Any,
) -> None:  # fmt: skip
    """Draw a solution, as a picture or as text.

    For a schedule: when each rank computes, waits and communicates. For a layout: its plan.

    The file's ending sets the format: a picture (.svg, .png, .pdf), a page to explore (.html), JSON for trace viewers,
    or text. A schedule that fails is drawn up to the failure, and the exit code is 1.

    With --size or --costs, draws any function in the file, at any size and without targets.
    """
    from .run import CommandWorkbench

    if os.path.isdir(path) and not pareto:
        raise click.UsageError(f"'{path}' is a folder; only --pareto takes a folder")
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
    track = track_for(puzzle)
    with usage_errors():
        passed = track.show.draw(puzzle, options, CommandWorkbench(path, track, puzzle.slug, time_limit, opens))
    ctx.exit(0 if passed else 1)


@click.command()
@click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.argument("puzzle", metavar="SLUG", type=PUZZLE)
@click.option("-o", "output", metavar="FILE", help="Where to write the picture  [default: SLUG_against.svg]")
@click.option("--open", "opens", is_flag=True, help="Open the picture.")
@click.pass_context
def compare(ctx: click.Context, path: str, puzzle: Puzzle, output: str | None, opens: bool) -> None:
    """Show the reference solution next to yours.

    Prints the lines that differ. For a schedule, also draws both runs in one picture.
    """
    from .run import CommandWorkbench

    slug, track = puzzle.slug, track_of(puzzle.slug)
    reference = reference_file(slug)
    if reference is None:
        raise click.UsageError(f"there is no reference solution of {slug} here")
    bench = CommandWorkbench(path, track, slug, TIME_LIMIT, opens)
    bench.require_readable(path)
    found = differing_lines(source_of(Submission.read(Path(path))), reference.read_text(encoding="utf-8"), slug)
    if found is None:
        raise click.ClickException(bench.absent())
    click.echo("\n".join(as_lines(found)))
    try:
        passed = track.show.draw(puzzle, DrawOptions(output or "", against=str(reference)), bench)
    except OptionError:  # a class or a layout has no such picture
        if output or opens:
            raise click.UsageError(f"there is no picture of {slug}; leave out -o and --open") from None
        return
    except PuzzleError as why:
        raise click.UsageError(str(why)) from None
    ctx.exit(0 if passed else 1)
