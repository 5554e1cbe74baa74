"""`puzzles export`: a schedule as other programs read it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from puzzles.catalog.puzzle import Puzzle
from puzzles.sandbox.deadline import TIME_LIMIT

from .shared.game_options import chosen, game_options, game_track
from .shared.params import Seconds, SlugText

if TYPE_CHECKING:
    from lib import Trace
    from puzzles.tracks.free_play import FreeGame


@click.command()
@click.argument("path", metavar="PATH", type=click.Path(exists=True, dir_okay=False))
@click.argument("name", metavar="SLUG", type=SlugText())
@game_options
@click.option(
    "--format", "form", type=click.Choice(["torch-csv"]), default="torch-csv", show_default=True, help="The format."
)
@click.option(
    "--communication", is_flag=True, help="Write messages, gathers and scatters too; else PyTorch adds its own."
)
@click.option("-o", "output", metavar="FILE.csv", help="Where to write  [default: the terminal]")
@click.option("--time-limit", type=Seconds(), default=TIME_LIMIT, show_default=True, help="Wall time of the run.")
def export(
    path: str, name: str, form: str, communication: bool, output: str | None, time_limit: float, **game: Any
) -> None:
    """Write a pipeline as a CSV file that PyTorch loads.

    A row for each rank, a cell for each action: torch.distributed.pipelining takes it with
    _load_csv(FILE, format="compute_only"), or "compute_comms" with --communication. What PyTorch has no word for is
    refused, with the reason.
    """
    from lib import PuzzleError
    from lib.torch_csv import write_csv

    found, trace = judged_run(path, name, game, time_limit)
    try:
        text = write_csv(trace, communication)
    except PuzzleError as why:
        raise click.ClickException(f"{found.slug} cannot be exported: {why}") from None
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        Path(output).write_text(text, encoding="utf-8")
    except OSError as why:
        raise click.UsageError(f"cannot write {output}: {(why.strerror or str(why)).lower()}") from None
    click.echo(f"Wrote {output}.")


def judged_run(path: str, name: str, options: Mapping[str, Any], seconds: float) -> tuple[FreeGame, Trace]:
    """The game, and the trace of a correct run."""
    from puzzles.failure import Failure
    from puzzles.tracks.free_play import FreeGame, own_game

    from .shared.workbench import CommandWorkbench

    puzzle = chosen(name, options)
    track = game_track(puzzle)
    if isinstance(puzzle, Puzzle):
        own = own_game(puzzle.slug)
        if own is None:
            raise click.UsageError(
                f"{puzzle.slug} is a puzzle of the track '{track.name}'; only schedules have a trace"
            )
        game = FreeGame(puzzle.slug, *own[1:])
    else:
        game = puzzle
    bench = CommandWorkbench(path, track, game.slug, seconds)
    outcome = bench.run(game.request())
    if outcome.is_absent:
        raise click.ClickException(bench.absent())
    judged = game.judged(outcome)
    if isinstance(judged, Failure):
        raise click.ClickException(f"{game.slug} is not correct ({game.described}): {bench.message(judged)}")
    return game, judged[0]
