"""A player's schedule, run in the sandbox and judged correct, for commands that need its trace and no target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from puzzles.catalog.puzzle import Puzzle

from .game_options import chosen, game_track

if TYPE_CHECKING:
    from lib import Trace
    from puzzles.tracks.free_play import FreeGame


def judged_run(path: str, name: str, options: Mapping[str, Any], seconds: float) -> tuple[FreeGame, Trace]:
    """The game, and the trace of a correct run."""
    from puzzles.failure import Failure
    from puzzles.tracks.free_play import FreeGame, own_game

    from .workbench import CommandWorkbench

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
