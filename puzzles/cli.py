"""The command line: `list`, `show`, `start`, `hint`, `draw`; the commands with files of their own are added below."""

from __future__ import annotations

import os
import sys

import click

from .arguments import Commands, Seconds, Slug, terminal
from .catalog import PUZZLES, Puzzle
from .doctor import doctor
from .grade import grade
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
    from .pages import show_list

    show_list(terminal(), PUZZLES.values())


@main.command()
@click.argument("puzzle", metavar="SLUG", type=Slug())
@click.option("--about", is_flag=True, help="Tell the idea behind it, what real systems do, and the sources.")
def show(puzzle: Puzzle, about: bool) -> None:
    """Show a puzzle: what to do, what to call, where to start."""
    from .pages import show_background, show_puzzle

    (show_background if about else show_puzzle)(terminal(), puzzle)


@main.command()
@click.argument("puzzle", metavar="SLUG", type=Slug())
@click.option("-n", "number", type=int, default=1, show_default=True, help="Which one, from gentle to explicit.")
def hint(puzzle: Puzzle, number: int) -> None:
    """Give a hint."""
    from .pages import show_hint
    from .progress import remember_hint

    if not 1 <= number <= len(puzzle.hints):
        raise click.UsageError(f"{puzzle.slug} has hints 1 to {len(puzzle.hints)}; there is no hint {number}")
    show_hint(terminal(), puzzle, number)
    remember_hint(puzzle.slug, number)


@main.command()
@click.argument("puzzle", metavar="[SLUG]", type=Slug(), required=False)
@click.option("-o", "output", metavar="FILE", help="Where to write  [default: my_solutions.py or my_SLUG.py]")
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
def start(puzzle: Puzzle | None, output: str | None, force: bool) -> None:
    """Write a file to start from, with all puzzles or with one."""
    from .starters import starter_file

    path = output or (f"my_{puzzle.slug}.py" if puzzle else "my_solutions.py")
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
@click.argument("path", metavar="PATH", type=click.Path(exists=True, dir_okay=False))
@click.argument("puzzle", metavar="SLUG", type=Slug())
@click.option("-o", "output", metavar="FILE.svg", help="Where to write the picture  [default: SLUG.svg]")
@click.option("--time-limit", type=Seconds(), default=TIME_LIMIT, show_default=True, help="Wall time for the run.")
@click.pass_context
def draw(ctx: click.Context, path: str, puzzle: Puzzle, output: str | None, time_limit: float) -> None:
    """Draw what a solution does: when each rank works, waits and communicates.

    A schedule that fails is drawn as far as it went; then the exit code is 1.
    """
    from .pictures import draw_solution

    target = output or f"{puzzle.slug}.svg"
    if os.path.splitext(target)[1].lower() != ".svg":
        raise click.UsageError(f"pictures are written as SVG; '{target}' should end in .svg")
    ctx.exit(draw_solution(path, puzzle, target, time_limit))


for command in (grade, watch, status, reset, verify, doctor):
    main.add_command(command)
