"""The command line: `puzzles list`, `show`, `start`, `hint`, `grade`, `draw`, `run`."""

from __future__ import annotations

import json
import os
import sys
from difflib import get_close_matches
from math import isfinite
from typing import TYPE_CHECKING, Any

import click

from .catalog import PUZZLES, Puzzle, UnknownPuzzle, find
from .engine_catalog import ENGINE_PUZZLES, EnginePuzzle
from .timer import TIME_LIMIT

if TYPE_CHECKING:
    from rich.console import Console


class Commands(click.Group):
    """A group that suggests the nearest command to a wrong one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            near = get_close_matches(name, self.commands, n=1, cutoff=0.5)
            if name in PUZZLES:
                advice = f"did you mean 'puzzles show {name}'?"
            elif near:
                advice = f"did you mean '{near[0]}'?"
            else:
                advice = f"there are {', '.join(self.commands)}"
            ctx.fail(f"there is no command '{name}'; {advice}")
        return super().resolve_command(ctx, args)


class Slug(click.ParamType):  # type: ignore[type-arg]  # generic only in newer clicks
    """A puzzle, named by its slug or its number."""

    name = "slug"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Puzzle:
        try:
            return value if isinstance(value, Puzzle) else find(value)
        except UnknownPuzzle as why:
            self.fail(str(why), param, ctx)


class AnySlug(Slug):
    """A puzzle of either track: the classes of the engine are named exactly."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and value in ENGINE_PUZZLES:
            return ENGINE_PUZZLES[value]
        return value if isinstance(value, EnginePuzzle) else super().convert(value, param, ctx)


class Seconds(click.ParamType):  # type: ignore[type-arg]  # as above
    """A positive number of seconds."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(value)
        except ValueError:
            seconds = 0.0
        if not (isfinite(seconds) and 0 < seconds <= 10**6):
            self.fail(f"'{value}' is not a positive number of seconds", param, ctx)
        return seconds


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Training Puzzles: learn how large models are trained on many devices, by writing the schedule.

    Begin with 'puzzles list'.
    """
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")  # a star that a terminal cannot write is no reason to stop


def terminal() -> Console:
    """Where people read: colours only if it is a terminal."""
    from rich.console import Console  # here, because '--json' and '--help' can do without

    return Console(highlight=False, markup=False, emoji=False)


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

    if not 1 <= number <= len(puzzle.hints):
        raise click.UsageError(f"{puzzle.slug} has hints 1 to {len(puzzle.hints)}; there is no hint {number}")
    show_hint(terminal(), puzzle, number)


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
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("--puzzle", metavar="SLUG", type=AnySlug(), help="Grade only this one.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")
@click.option("--time-limit", type=Seconds(), default=TIME_LIMIT, show_default=True, help="Wall time for each puzzle.")
@click.pass_context
def grade(ctx: click.Context, paths: tuple[str, ...], puzzle: Puzzle | None, as_json: bool, time_limit: float) -> None:
    """Grade solutions: files, or every Python file below a folder.

    Exits with 0 if everything attempted passed, with 1 if not or if nothing was attempted.
    """
    from . import verdict
    from .engine_grade import grade_engine
    from .files import submissions
    from .grader import grade_file

    asked = [puzzle] if puzzle else [*PUZZLES.values(), *ENGINE_PUZZLES.values()]
    classes = [p for p in asked if isinstance(p, EnginePuzzle)]
    found = {path: grade_engine(path, classes, time_limit) for path in submissions(paths)}
    engine = {path: verdicts for path, verdicts in found.items() if verdicts}
    wanted = [p for p in asked if isinstance(p, Puzzle)]
    files = [grade_file(path, wanted, time_limit) for path in found] if wanted else []
    if engine:  # a file that only has classes of the engine is not told that it attempts nothing
        files = [graded for graded in files if graded.attempted or graded.path not in engine]
    if as_json:
        told = verdict.as_json(files)
        if engine:
            told["engine"] = [{"path": path, "results": [v.as_json() for v in vs]} for path, vs in engine.items()]
        click.echo(json.dumps(told, indent=2))
    else:
        from .report import report

        if files or not engine:
            report(terminal(), files)
        for path, verdicts in engine.items():
            from .engine_pages import report_engine

            report_engine(terminal(), path, verdicts)
    passed = all(v.status == "passed" for verdicts in engine.values() for v in verdicts)
    attempted = any(graded.attempted for graded in files)
    ctx.exit(0 if passed and (verdict.all_passed(files) if attempted or not engine else True) else 1)


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


@main.command()
@click.argument("path", metavar="PATH", type=click.Path(exists=True, dir_okay=False))
@click.argument("puzzle", metavar="SLUG", type=AnySlug())
@click.option("--on", type=click.Choice(["inprocess", "mpi"]), default="inprocess", show_default=True, help="Where.")
@click.option("-n", "ranks", type=click.IntRange(1, 64), help="How many devices  [default: as many as the puzzle has]")
@click.option("--small", is_flag=True, help="Use small tensors of whole numbers.")
@click.pass_context
def run(ctx: click.Context, path: str, puzzle: Puzzle, on: str, ranks: int | None, small: bool) -> None:
    """Run a solution on real tensors, and compare with what the game foretells.

    Exits with 0 if the weights, the memory and the bytes are as foretold.
    """
    from .run import run_class, run_solution

    if isinstance(puzzle, EnginePuzzle):
        ctx.exit(0 if run_class(terminal(), path, puzzle, on, ranks) else 1)
    ctx.exit(0 if run_solution(terminal(), path, puzzle, on, ranks, small) else 1)
