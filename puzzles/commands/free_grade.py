"""`puzzles grade` of free games: each schedule in each file, run in the sandbox and judged without targets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from puzzles.failure import Failure, plain
from puzzles.sandbox.limits import Limits
from puzzles.sandbox.tiers import Tier

from .shared.params import terminal

if TYPE_CHECKING:
    from lib import Report, Trace
    from puzzles.tracks.free_play import FreeGame

FOR_VERDICTS = (
    "strict", "html", "junit", "csv", "gradescope", "points", "why", "resume", "dask", "mpi", "jobs",
)  # fmt: skip
"""Options of `grade` that are about targets, points or whole classes."""

Judged = tuple[str, "FreeGame", "tuple[Trace, Report] | Failure"]
"""A file, a game, and what came of it."""


def require_free(options: Mapping[str, Any]) -> None:
    """Refuses options that free games do not have.

    Raises:
        click.UsageError: the text says which.
    """
    for name in FOR_VERDICTS:
        if options[name]:
            raise click.UsageError(f"a game without targets has no verdict for --{name}; leave it out, or use --json")


def grade_freely(
    paths: Sequence[str], games: Sequence[FreeGame], limits: Limits, tier: Tier, traces: str | None, as_json: bool
) -> bool:
    """Runs and judges the games, shows what they took, and returns whether all are correct."""
    judged = [one for path in paths for one in _judged(path, games, limits, tier)]
    if as_json:
        click.echo(json.dumps({"schedules": [_row(*one) for one in judged]}, indent=2))
    else:
        for one in judged:
            _show(*one)
    if traces:
        _save(judged, Path(traces), said=not as_json)
    return bool(judged) and not any(isinstance(result, Failure) for *_, result in judged)


def _judged(path: str, games: Sequence[FreeGame], limits: Limits, tier: Tier) -> list[Judged]:
    from puzzles.grading.sandboxed_run import run_in
    from puzzles.grading.session import Session
    from puzzles.grading.submission import Submission
    from puzzles.tracks.free_play import free_track

    submission = Submission.read(Path(path))
    if submission.failure is not None:
        return [(path, game, submission.failure) for game in games]
    found: list[Judged] = []
    with Session(submission, limits, tier, names=[game.slug for game in games]) as session:
        for game in games:
            outcome = run_in(session, free_track(), game.slug, game.request().data, limits.seconds)
            result = Failure("crash", f"it has no function {game.slug}") if outcome.is_absent else game.judged(outcome)
            if isinstance(result, Failure):
                result = result._replace(sentence=submission.placed(result.message), line=0)
            found.append((path, game, result))
    return found


def verify_freely(path: str, saved: bytes, as_json: bool) -> bool:
    """Judges a saved trace of any size and setting, shows what the run took, and returns whether it is correct."""
    from lib import PuzzleError
    from puzzles.grading.source_file import MAX_FILE_SIZE
    from puzzles.tracks.free_play import judged_saved

    try:
        if len(saved) > MAX_FILE_SIZE:
            raise PuzzleError(f"it has more than {MAX_FILE_SIZE:,} bytes")
        game, result = judged_saved(Path(path).stem, saved)
    except PuzzleError as why:
        message = plain(f"this trace cannot be judged: {why}")
        click.echo(json.dumps({"status": "failed", "message": message}, indent=2) if as_json else message)
        return False
    if as_json:
        click.echo(json.dumps(_row(path, game, result), indent=2))
    else:
        _show(path, game, result)
    return not isinstance(result, Failure)


def _show(path: str, game: FreeGame, result: tuple[Trace, Report] | Failure) -> None:
    from puzzles.tracks.free_play import show_report

    console = terminal()
    console.print(path, style="bold", soft_wrap=True)
    if isinstance(result, Failure):
        console.print(f"{game.slug} is not correct ({game.described}): {result.message}", soft_wrap=True)
    else:
        show_report(console, game, *result)


def _row(path: str, game: FreeGame, result: tuple[Trace, Report] | Failure) -> dict[str, Any]:
    from lib.game.setting_notation import setting_to_json
    from puzzles.tracks.free_play import figures

    row = {
        "submission": path,
        "name": game.slug,
        "size": game.size._asdict(),
        "setting": setting_to_json(game.setting),
    }
    if isinstance(result, Failure):
        return {**row, "status": "failed", "reason": result.reason, "message": result.message}
    return {**row, "status": "correct", "note": game.note, **figures(result[1])}


def _save(judged: Sequence[Judged], folder: Path, said: bool) -> None:
    """Writes the traces of the correct runs: of one file into the folder itself, of several into one for each."""
    from lib import trace_to_json

    numbers = {path: number for number, path in enumerate(dict.fromkeys(path for path, *_ in judged))}
    try:
        for path, game, result in judged:
            if isinstance(result, Failure):
                continue
            target = folder if len(numbers) == 1 else folder / f"{numbers[path]:04}_{Path(path).stem[:60]}"
            target.mkdir(parents=True, exist_ok=True)
            (target / f"{game.slug}.json").write_text(trace_to_json(result[0]), encoding="utf-8")
            if said:
                click.echo(f"Wrote {target / game.slug}.json, for 'puzzles verify TRACE.json'.")
    except OSError as why:
        raise click.ClickException(f"cannot write to {folder}: {why.strerror or why}") from None
