"""`puzzles verify`: judges a saved run again, so that a leaderboard needs no trust."""

from __future__ import annotations

import json

import click

from puzzles.catalog.puzzle import Puzzle
from puzzles.grading.saved_run import judge_saved
from puzzles.grading.source_file import SourceFile
from puzzles.tracks import track_of
from puzzles.tracks.outcomes import capitalized

from .free_grade import verify_freely
from .shared.params import SavedSlug


@click.command()
@click.argument("path", metavar="TRACE.json", type=click.Path(exists=True, dir_okay=False))
@click.option("--puzzle", metavar="SLUG", type=SavedSlug(), help="The puzzle that it should solve  [default: none]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")
@click.pass_context
def verify(ctx: click.Context, /, path: str, puzzle: Puzzle | None, as_json: bool) -> None:
    """Judge a saved trace again, without running any code.

    'puzzles grade --traces FOLDER' saves traces. Without --puzzle a schedule of any size and setting is judged by the
    rules alone, and what it took is shown.

    Exits with 0 if it passes, with 1 if not.
    """
    try:
        saved = SourceFile(path).read()
    except OSError as why:
        raise click.UsageError(f"cannot read {path}: {why.strerror or why}") from None
    if puzzle is None:
        ctx.exit(0 if verify_freely(path, saved, as_json) else 1)
    verdict = judge_saved(puzzle, saved)
    track = track_of(puzzle.slug)
    if as_json:
        figures = track.figures_json(verdict.figures)
        row = {"status": verdict.status, "stars": verdict.stars, **figures, "message": verdict.message}
        click.echo(json.dumps(row, indent=2))
    else:
        figures_text = f"{track.figures_text(puzzle, verdict.figures)}." if verdict.figures else ""
        words = " ".join(filter(None, [figures_text, capitalized(verdict.message)]))
        click.echo(f"{verdict.status.replace('_', ' ')}, {verdict.stars} of 3 stars. {words}")
        for note in verdict.notes:
            click.echo(f"Note: {note}")
    ctx.exit(0 if verdict.status == "passed" else 1)
