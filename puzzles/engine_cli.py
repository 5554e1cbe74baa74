"""`puzzles engine grade` and `puzzles run`: classes and schedules on real tensors, in this process."""

from __future__ import annotations

import json
from typing import Any

import click

from .arguments import Seconds, Slug, terminal
from .catalog import Puzzle
from .engine_catalog import ENGINE_PUZZLES, EnginePuzzle
from .timer import TIME_LIMIT


class AnySlug(Slug):
    """A puzzle of either track: the classes of the engine are named exactly."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, str) and value in ENGINE_PUZZLES:
            return ENGINE_PUZZLES[value]
        return value if isinstance(value, EnginePuzzle) else super().convert(value, param, ctx)


@click.group()
def engine() -> None:
    """Puzzles on real tensors; `puzzles list` names them, `show`, `hint` and `start` take their names."""


@engine.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("--puzzle", metavar="NAME", type=click.Choice(list(ENGINE_PUZZLES)), help="Grade only this one.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")
@click.option("--time-limit", type=Seconds(), default=TIME_LIMIT, show_default=True, help="Wall time for each puzzle.")
@click.pass_context
def grade(ctx: click.Context, paths: tuple[str, ...], puzzle: str | None, as_json: bool, time_limit: float) -> None:
    """Grade classes of your own: they run in this process, so not those of people you do not trust.

    Exits with 0 if everything attempted passed, with 1 if not or if nothing was attempted.
    """
    from .engine_grade import grade_engine
    from .engine_pages import report_engine
    from .files import submissions

    classes = [ENGINE_PUZZLES[puzzle]] if puzzle else list(ENGINE_PUZZLES.values())
    found = {path: grade_engine(path, classes, time_limit) for path in submissions(paths)}
    graded = {path: verdicts for path, verdicts in found.items() if verdicts}
    if as_json:
        files = [{"path": path, "results": [v.as_json() for v in verdicts]} for path, verdicts in graded.items()]
        click.echo(json.dumps({"version": 1, "engine": files}, indent=2))
    else:
        for path, verdicts in graded.items():
            report_engine(terminal(), path, verdicts)
        if not graded:
            click.echo("Nothing attempted: a class counts when it has a puzzle's name; 'puzzles list' tells them.")
    passed = graded and all(v.status == "passed" for verdicts in graded.values() for v in verdicts)
    ctx.exit(0 if passed else 1)


@click.command()
@click.argument("path", metavar="PATH", type=click.Path(exists=True, dir_okay=False))
@click.argument("puzzle", metavar="SLUG", type=AnySlug())
@click.option("--on", type=click.Choice(["inprocess", "mpi"]), default="inprocess", show_default=True, help="Where.")
@click.option("-n", "ranks", type=click.IntRange(1, 64), help="How many devices  [default: as many as the puzzle has]")
@click.option("--small", is_flag=True, help="Use small tensors of whole numbers.")
@click.option("-o", "--output", metavar="FILE.svg", default="", help="Draw foretold above measured time.")
@click.pass_context
def run(ctx: click.Context, path: str, puzzle: Puzzle, on: str, ranks: int | None, small: bool, output: str) -> None:
    """Run a solution on real tensors, and compare with what the game foretells.

    Exits with 0 if the weights, the memory and the bytes are as foretold.
    """
    from .run import require_picture, run_class, run_solution

    require_picture(output, puzzle)
    if isinstance(puzzle, EnginePuzzle):
        ctx.exit(0 if run_class(terminal(), path, puzzle, on, ranks) else 1)
    ctx.exit(0 if run_solution(terminal(), path, puzzle, on, ranks, small, output) else 1)
