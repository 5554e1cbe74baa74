"""`puzzles share`: a link that opens a solution in the browser; the link itself holds the code, or the run."""

from pathlib import Path

import click

from puzzles.address import site as published
from puzzles.catalog.puzzle import Puzzle
from puzzles.failure import of_source
from puzzles.grading.submission import Submission
from puzzles.tracks import TRACKS, track_of

from .shared.puzzle_params import saved_puzzle

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
    from puzzles.site.links import LOCAL, link

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
    from puzzles.site.links import split

    submission = Submission.read(Path(path))
    if submission.failure is not None:
        raise click.ClickException(f"{path}: {submission.failure.message}")
    if Path(path).suffix == ".ipynb":
        raise click.ClickException(f"{path} is a notebook; copy the cell with {slug} to a .py file")
    try:
        codes = split(submission.text, [slug for track in TRACKS.values() for slug in track.slugs])
    except (SyntaxError, ValueError, RecursionError) as why:
        raise click.ClickException(f"{path}: {of_source(why).message}") from None
    if slug not in codes:
        raise click.ClickException(f"{path} has no {slug}; write '{track_of(slug).words.signature(slug)}:' in it")
    return codes[slug]


def _run(path: str, puzzle: Puzzle) -> str:
    from puzzles.grading.grader import grade_puzzle
    from puzzles.grading.session import Session

    with Session(Submission.read(Path(path))) as session:
        verdict = grade_puzzle(puzzle, session, keep=True)
    if not verdict.figures:
        raise click.ClickException(f"{puzzle.slug} in {path} is not correct, so there is no run to share: "
                                   f"{verdict.message or 'nothing is attempted'}")  # fmt: skip
    return verdict.trace
