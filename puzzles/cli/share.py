"""`puzzles share`: a link that opens a solution in the browser; the link itself holds the code, or the run.

`verify`: judges a saved run again, so that a figure needs no trust.
"""

import json
from pathlib import Path
from typing import Any

import click

from lib import PuzzleError
from lib.ledger.setting import setting_to_json
from puzzles.catalog.puzzle import Puzzle
from puzzles.failure import Failure, of_source, sanitized
from puzzles.judge.judge import judge_saved
from puzzles.judge.submission import MAX_FILE_SIZE, SourceFile, Submission
from puzzles.tracks import track_of
from puzzles.tracks.free_play import figures, judged_saved, show_report
from puzzles.tracks.outcomes import capitalized
from puzzles.version import site as published

from .params import terminal
from .puzzle_params import saved_puzzle

MAX_LINK = 8000
"""Characters of a link that some programs cut off."""


@click.command()
@click.argument("path", metavar="PATH", type=click.Path(exists=True, dir_okay=False))
@click.argument("puzzle", metavar="SLUG", type=saved_puzzle)
@click.option("--run", "of_run", is_flag=True, help="Share the run without the code.")
@click.option("--site", metavar="URL", help="Address of the site  [default: the published one, else this machine]")
@click.pass_context
def share(ctx: click.Context, /, path: str, puzzle: Puzzle, of_run: bool, site: str | None) -> None:
    """Print a link that opens a solution in the browser.

    The link itself contains the compressed code or, with --run, the trace of a run, which the browser judges again.
    Nothing is uploaded. The code runs in the browser of the person who opens the link.
    """
    from puzzles.page.in_browser.calls import LOCAL, link

    text = _run(path, puzzle) if of_run else _code(path, puzzle.slug)
    address = site or published()
    made = link(address or LOCAL, puzzle.slug, "run" if of_run else "code", text)
    click.echo(made)
    if address is None:
        click.echo(
            "The game has no public address yet. This link works on this machine while 'make serve' runs; name the "
            "address of your own site with --site.",
            err=True,
        )
    if len(made) > MAX_LINK:
        click.echo(f"The link has {len(made):,} characters; some programs cut off long links.", err=True)


def _code(path: str, slug: str) -> str:
    from puzzles.page.in_browser.calls import split

    submission = Submission.read(Path(path))
    if submission.failure is not None:
        raise click.ClickException(f"{path}: {submission.failure.message}")
    if Path(path).suffix == ".ipynb":
        raise click.ClickException(f"{path} is a notebook; copy the cell with {slug} to a .py file")
    try:
        codes = split(submission.text)
    except (SyntaxError, ValueError, RecursionError) as why:
        raise click.ClickException(f"{path}: {of_source(why).message}") from None
    if slug not in codes:
        raise click.ClickException(f"{path} has no {slug}; write '{track_of(slug).words.signature(slug)}:' in it")
    return codes[slug]


def _run(path: str, puzzle: Puzzle) -> str:
    from puzzles.judge.grader import grade_puzzle
    from puzzles.judge.session import Session

    with Session(Submission.read(Path(path))) as session:
        verdict = grade_puzzle(puzzle, session, keep=True)
    if not verdict.figures:
        raise click.ClickException(f"{puzzle.slug} in {path} is not correct, so there is no run to share: "
                                   f"{verdict.message or 'nothing is attempted'}")  # fmt: skip
    return verdict.trace


# --- Saved runs ---


@click.command()
@click.argument("path", metavar="TRACE.json", type=click.Path(exists=True, dir_okay=False))
@click.option("--puzzle", metavar="SLUG", type=saved_puzzle, help="The puzzle that it should solve  [default: none]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")
@click.pass_context
def verify(ctx: click.Context, /, path: str, puzzle: Puzzle | None, as_json: bool) -> None:
    """Judge a saved trace again, without running any code.

    'puzzles grade --traces FOLDER' saves traces of puzzles, and lib.trace_to_json writes any trace. Without --puzzle, a
    schedule of any size and setting is judged by the rules alone, and its figures are shown.

    The exit code is 0 if it passes, and 1 if not.
    """
    try:
        saved = SourceFile(path).read()
    except OSError as why:
        raise click.UsageError(f"cannot read {path}: {why.strerror or why}") from None
    if puzzle is None:
        ctx.exit(0 if _verify_freely(path, saved, as_json) else 1)
    verdict = judge_saved(puzzle, saved)
    track = track_of(puzzle.slug)
    if as_json:
        figures = track.words.figures_json(verdict.figures)
        row = {"status": verdict.status, "stars": verdict.stars, **figures, "message": verdict.message}
        click.echo(json.dumps(row, indent=2))
    else:
        figures_text = f"{track.words.figures_text(puzzle, verdict.figures)}." if verdict.figures else ""
        words = " ".join(filter(None, [figures_text, capitalized(verdict.message)]))
        click.echo(f"{verdict.status.replace('_', ' ')}, {verdict.stars} of 3 stars. {words}")
        for note in verdict.notes:
            click.echo(f"Note: {note}")
    ctx.exit(0 if verdict.status == "passed" else 1)


def _verify_freely(path: str, saved: bytes, as_json: bool) -> bool:
    """Judges a saved trace of any size and setting, shows its figures, and returns whether it is correct."""
    try:
        if len(saved) > MAX_FILE_SIZE:
            raise PuzzleError(f"it has more than {MAX_FILE_SIZE:,} bytes")
        game, result = judged_saved(Path(path).stem, saved)
    except PuzzleError as why:
        message = sanitized(f"this trace cannot be judged: {why}")
        click.echo(json.dumps({"status": "failed", "message": message}, indent=2) if as_json else message)
        return False
    failed = isinstance(result, Failure)
    if as_json:
        row: dict[str, Any] = {
            "submission": path,
            "name": game.slug,
            "size": game.size._asdict(),
            "setting": setting_to_json(game.setting),
        }
        if isinstance(result, Failure):
            row |= {"status": "failed", "reason": result.reason, "message": result.message}
        else:
            row |= {"status": "correct", "note": game.note, **figures(result[1])}
        click.echo(json.dumps(row, indent=2))
        return not failed
    console = terminal()
    console.print(path, style="bold", soft_wrap=True)
    if isinstance(result, Failure):
        console.print(f"{game.slug} is not correct ({game.described}): {result.message}", soft_wrap=True)
    else:
        show_report(console, game, *result)
    return not failed
