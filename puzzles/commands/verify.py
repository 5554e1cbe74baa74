"""`puzzles verify`: judges a saved trace again, so that a leaderboard needs no trust."""

from __future__ import annotations

import json
from pathlib import Path

import click

from lib import PuzzleError, trace_from_json
from puzzles.catalog.schedule import Puzzle

from .params import Slug

LARGEST = 16 << 20
"""Bytes of a trace that are read."""


@click.command()
@click.argument("path", metavar="TRACE.json", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--puzzle", metavar="SLUG", type=Slug("schedule"), required=True, help="The puzzle that it is said to solve."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")
@click.pass_context
def verify(ctx: click.Context, path: str, puzzle: Puzzle, as_json: bool) -> None:
    """Judge a saved trace ('puzzles grade --traces FOLDER' saves them). No code is run, only the rules.

    Exits with 0 if it passes, with 1 if not.
    """
    from puzzles.failure import Failure, plain
    from puzzles.tracks.schedule.track import judge

    try:
        with Path(path).open("rb") as file:
            text = file.read(LARGEST + 1)
        if len(text) > LARGEST:
            raise ValueError(f"it has more than {LARGEST:,} bytes")
        report = judge(trace_from_json(text.decode()), puzzle, puzzle.goal.size)
        if isinstance(report, Failure):
            raise ValueError(report.sentence)
    except OSError as why:
        raise click.UsageError(f"cannot read {path}: {why.strerror}") from None
    except (PuzzleError, ValueError, TypeError, RecursionError) as why:
        return _tell(ctx, as_json, "failed", plain(f"this trace cannot be judged: {why}"), 0)
    if report.error is not None:
        return _tell(ctx, as_json, "failed", plain(report.verdict()), 0)
    figures = {"timesteps": report.timesteps, "makespan": report.makespan, "peak_memory": report.peak.memory}
    return _tell(ctx, as_json, report.status, plain(report.verdict()), report.stars, figures)


def _tell(
    ctx: click.Context, as_json: bool, status: str, message: str, stars: int, figures: dict[str, float] | None = None
) -> None:
    if as_json:
        none = {"timesteps": None, "makespan": None, "peak_memory": None}
        click.echo(json.dumps({"status": status, "stars": stars, **(figures or none), "message": message}, indent=2))
    else:
        click.echo(f"{status.replace('_', ' ')}, {stars} of 3 stars. {message}")
    ctx.exit(0 if status == "passed" else 1)
