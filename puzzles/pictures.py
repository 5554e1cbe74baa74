"""The picture of a player's schedule, as far as it went."""

from __future__ import annotations

from pathlib import Path

import click

from lib import PuzzleError, Trace

from .catalog import Puzzle
from .failure import of_source
from .submission import Submission
from .timer import Timer
from .trial import play


def draw_solution(path: str, puzzle: Puzzle, target: str, seconds: float) -> int:
    """Runs the function and writes its timeline to `target`; 1 if the run failed, which it tells, else 0."""
    submission = Submission.read(Path(path))
    if submission.problem is not None:
        raise click.ClickException(f"{path}: {of_source(submission.problem).message}")
    trace, failure, _ = play(submission, puzzle.slug, puzzle.goal.size, Timer(seconds))
    if trace is not None and any(trace.ranks):
        _save(trace, puzzle.title, target)
        click.echo(f"Wrote {target}.")
    if failure is not None:
        click.echo(f"{puzzle.slug} failed: {failure.message}", err=True)
    elif trace is None:
        raise click.ClickException(f"{path} has no function {puzzle.slug}; write 'def {puzzle.slug}(model):'")
    return 1 if failure is not None else 0


def _save(trace: Trace, title: str, target: str) -> None:
    try:
        import drawing
    except ImportError as why:
        raise click.ClickException(f"pictures need chalk-diagrams; pip install it ({why})") from None
    picture = drawing.draw(trace, title=title)
    try:
        drawing.save(picture, target)
    except (OSError, PuzzleError) as why:
        reason = str(why) if isinstance(why, PuzzleError) else f"cannot write {target}: {why.strerror}"
        raise click.UsageError(reason) from None
