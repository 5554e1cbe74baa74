"""The command line: `list`, `show`, `start`, `hint`, `draw`, `run`; commands with files of their own come below."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any

import click

from puzzles.sandbox.deadline import TIME_LIMIT
from puzzles.tracks import SCHEDULES, Part, track_of

from .doctor import doctor
from .grade import grade
from .notebook import notebook
from .params import Commands, PartOrSlug, Seconds, Slug, terminal
from .status import reset, status
from .verify import verify
from .watch import watch


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Training Puzzles: learn how large models are trained on many devices, by writing the schedule.

    Begin with 'puzzles list'.
    """
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")  # a star that a terminal cannot write is no reason to stop


@main.command("list")
@click.argument("part", metavar="[TRACK|CHAPTER]", type=PartOrSlug(), required=False)
def list_(part: Any) -> None:
    """List the tracks with their puzzles and your stars; of one track or chapter, its puzzles with their targets."""
    from puzzles.grading.progress import load

    from .show import show_list, show_part

    if part is None:
        return show_list(terminal(), load())
    if not isinstance(part, Part):
        raise click.UsageError(f"'{part.slug}' is a puzzle; 'puzzles show {part.slug}' tells it")
    show_part(terminal(), part, load())


@main.command()
@click.argument("puzzle", metavar="SLUG", type=Slug())
@click.option("--about", is_flag=True, help="Tell the idea behind it, what real systems do, and the sources.")
def show(puzzle: Any, about: bool) -> None:
    """Show a puzzle: what to do, what to call, where to start."""
    from .show import show_background, show_puzzle

    (show_background if about else show_puzzle)(terminal(), puzzle)


@main.command()
@click.argument("puzzle", metavar="SLUG", type=Slug())
@click.option("-n", "number", type=int, default=1, show_default=True, help="Which one, from gentle to explicit.")
def hint(puzzle: Any, number: int) -> None:
    """Give a hint."""
    from puzzles.grading.progress import remember_hint

    from .show import show_hint

    if not 1 <= number <= len(puzzle.hints):
        raise click.UsageError(f"{puzzle.slug} has hints 1 to {len(puzzle.hints)}; there is no hint {number}")
    show_hint(terminal(), puzzle, number)
    remember_hint(puzzle.slug, number)


@main.command()
@click.argument("wanted", metavar="[SLUG|TRACK|CHAPTER]", type=PartOrSlug(), required=False)
@click.option("-o", "output", metavar="FILE", help="Where to write  [default: my_solutions.py, or my_ and the name]")
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
def start(wanted: Any, output: str | None, force: bool) -> None:
    """Write a file to start from: with all schedules; or with a puzzle, a chapter, a track."""
    from puzzles.grading.starters import starter_file

    if wanted is None:
        name, slugs = "solutions", SCHEDULES.slugs
    else:
        name, slugs = (wanted.name, wanted.slugs) if isinstance(wanted, Part) else (wanted.slug, (wanted.slug,))
    track = track_of(slugs[0])
    path = output or f"my_{name}.py"
    text = starter_file(track, [track.puzzle(slug) for slug in slugs], path)
    try:
        with open(path, "w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise click.UsageError(
            f"{path} exists already; choose another name with -o, or overwrite it with --force"
        ) from None
    except OSError as why:
        raise click.UsageError(f"cannot write {path}: {why.strerror}") from None
    click.echo(f"Wrote {path}. Write your solution between the marked lines, then: puzzles grade {path}")


@main.command()
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
    ctx: click.Context, path: str, puzzle: Any, output: str | None, text: bool, width: int | None, critical: bool,
    against: str | None, pareto: bool, dark: bool, time_limit: float,
) -> None:  # fmt: skip
    """Draw what a solution does: of a schedule when each rank works, waits and communicates; of a layout the plan.

    The format follows the ending: a picture, a page to explore, JSON for trace viewers, or text; a plan is a picture.
    A schedule that fails is drawn as far as it went; then the exit code is 1.
    """
    from .draw import Wish, draw_layout, fulfil

    if os.path.isdir(path) and not pareto:
        raise click.UsageError(f"'{path}' is a directory; only --pareto takes a folder")
    if (against or pareto) and (text or (against and pareto)):
        raise click.UsageError("choose one of --text, --against and --pareto")
    if width is not None and not text:
        raise click.UsageError("--width is for --text")
    track = track_of(puzzle.slug).name
    if track == "engine":
        raise click.UsageError(f"{puzzle.slug} is a class, of which there is no picture; 'puzzles grade' measures it")
    if track == "layout":
        if text or against or pareto or critical:
            raise click.UsageError(f"{puzzle.slug} is a layout; of it there is only the picture of its plan")
        ctx.exit(draw_layout(path, puzzle, output or f"{puzzle.slug}.svg", dark, time_limit))
    columns = width if width is not None else max(shutil.get_terminal_size().columns, 40)
    ctx.exit(fulfil(Wish(path, puzzle, output or "", text, columns, against or "", pareto, critical, dark, time_limit)))


@main.command()
@click.argument("path", metavar="PATH", type=click.Path(exists=True, dir_okay=False))
@click.argument("puzzle", metavar="SLUG", type=Slug())
@click.option("--on", type=click.Choice(["inprocess", "mpi"]), default="inprocess", show_default=True, help="Where.")
@click.option("-n", "ranks", type=click.IntRange(1, 64), help="How many devices  [default: as many as the puzzle has]")
@click.option("--small", is_flag=True, help="Use small tensors of whole numbers.")
@click.option("-o", "output", metavar="FILE.svg", default="", help="Draw foretold above measured time.")
@click.pass_context
def run(ctx: click.Context, path: str, puzzle: Any, on: str, ranks: int | None, small: bool, output: str) -> None:
    """Run a solution on real tensors, and compare with what the game foretells.

    Exits with 0 if the weights, the memory and the bytes are as foretold; of a layout, every tensor and the bytes.
    """
    from .run import run_class, run_solution

    track = track_of(puzzle.slug).name
    if output:
        require_picture(output, puzzle)
    if track == "layout":
        from .run_layout import run_layout

        ctx.exit(0 if run_layout(terminal(), path, puzzle, on, ranks) else 1)
    if track == "engine":
        ctx.exit(0 if run_class(terminal(), path, puzzle, on, ranks) else 1)
    ctx.exit(0 if run_solution(terminal(), path, puzzle, on, ranks, small, output) else 1)


def require_picture(output: str, puzzle: Any) -> None:
    """Refuses, before anything runs, a name that no picture can be written to, or what has no timeline."""
    from drawing import require_ending
    from lib import PuzzleError

    track = track_of(puzzle.slug).name
    if track == "engine":
        raise click.UsageError(f"{puzzle.slug} is a class, and only schedules are drawn; leave out -o")
    if track == "layout":
        raise click.UsageError(f"{puzzle.slug} is a layout, of which 'puzzles draw' makes a picture; leave out -o")
    try:
        require_ending(output, of_a_run=False)
    except PuzzleError as why:
        raise click.UsageError(str(why)) from None


for command in (grade, watch, status, reset, verify, doctor, notebook):
    main.add_command(command)
