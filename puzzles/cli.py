"""The command line: `list`, `show`, `start`, `hint`, `draw`; the commands with files of their own are added below."""

from __future__ import annotations

import os
import shutil
import sys

import click

from .arguments import Commands, Seconds, Slug, terminal
from .catalog import PUZZLES, Puzzle
from .doctor import doctor
from .engine_catalog import ENGINE_PUZZLES, EnginePuzzle
from .engine_cli import AnySlug, engine, run
from .grade import grade
from .layout_cli import layout
from .notebook.command import notebook
from .status import reset, status
from .timer import TIME_LIMIT
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
def list_() -> None:
    """List the puzzles with their sizes and targets."""
    from .engine_pages import show_engine_list
    from .pages import show_list

    show_list(terminal(), PUZZLES.values())
    show_engine_list(terminal(), ENGINE_PUZZLES.values())


@main.command()
@click.argument("puzzle", metavar="SLUG", type=AnySlug())
@click.option("--about", is_flag=True, help="Tell the idea behind it, what real systems do, and the sources.")
def show(puzzle: Puzzle, about: bool) -> None:
    """Show a puzzle: what to do, what to call, where to start."""
    from .pages import show_background, show_puzzle

    if isinstance(puzzle, EnginePuzzle):
        from .engine_pages import show_engine_background, show_engine_puzzle

        return (show_engine_background if about else show_engine_puzzle)(terminal(), puzzle)
    (show_background if about else show_puzzle)(terminal(), puzzle)


@main.command()
@click.argument("puzzle", metavar="SLUG", type=AnySlug())
@click.option("-n", "number", type=int, default=1, show_default=True, help="Which one, from gentle to explicit.")
def hint(puzzle: Puzzle, number: int) -> None:
    """Give a hint."""
    from .pages import show_hint
    from .progress import remember_hint

    if not 1 <= number <= len(puzzle.hints):
        raise click.UsageError(f"{puzzle.slug} has hints 1 to {len(puzzle.hints)}; there is no hint {number}")
    show_hint(terminal(), puzzle, number)
    if puzzle.slug in PUZZLES:  # progress is kept of the schedules only
        remember_hint(puzzle.slug, number)


@main.command()
@click.argument("puzzle", metavar="[SLUG]", type=AnySlug(), required=False)
@click.option("-o", "output", metavar="FILE", help="Where to write  [default: my_solutions.py or my_SLUG.py]")
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
def start(puzzle: Puzzle | None, output: str | None, force: bool) -> None:
    """Write a file to start from, with all puzzles or with one."""
    from .starters import starter_file

    path = output or (f"my_{puzzle.slug}.py" if puzzle else "my_solutions.py")
    if isinstance(puzzle, EnginePuzzle):
        from .engine_pages import engine_starter

        text = engine_starter(puzzle)
    else:
        text = starter_file([puzzle] if puzzle else list(PUZZLES.values()), path)
    try:
        with open(path, "w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise click.UsageError(
            f"{path} exists already; choose another name with -o, or overwrite it with --force"
        ) from None
    except OSError as why:
        raise click.UsageError(f"cannot write {path}: {why.strerror}") from None
    click.echo(f"Wrote {path}. Write your schedule between the marked lines, then: puzzles grade {path}")


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
    ctx: click.Context, path: str, puzzle: Puzzle, output: str | None, text: bool, width: int | None, critical: bool,
    against: str | None, pareto: bool, dark: bool, time_limit: float,
) -> None:  # fmt: skip
    """Draw what a solution does: when each rank works, waits and communicates.

    The format follows the ending: a picture, a page to explore, JSON for trace viewers, or text. A schedule that
    fails is drawn as far as it went; then the exit code is 1.
    """
    from .pictures import Wish, fulfil

    if os.path.isdir(path) and not pareto:
        raise click.UsageError(f"'{path}' is a directory; only --pareto takes a folder")
    if (against or pareto) and (text or (against and pareto)):
        raise click.UsageError("choose one of --text, --against and --pareto")
    if width is not None and not text:
        raise click.UsageError("--width is for --text")
    columns = width if width is not None else max(shutil.get_terminal_size().columns, 40)
    ctx.exit(fulfil(Wish(path, puzzle, output or "", text, columns, against or "", pareto, critical, dark, time_limit)))


for command in (grade, watch, status, reset, verify, doctor, notebook, layout, engine, run):
    main.add_command(command)
