"""`puzzles compare`: the reference solution next to the player's, as a picture and as the lines that differ."""

from pathlib import Path

import click

from puzzles.catalog.puzzle import Puzzle
from puzzles.sandbox.deadline import TIME_LIMIT
from puzzles.tracks import OptionError, track_of

from .shared.params import Slug


@click.command()
@click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False))
@click.argument("puzzle", metavar="SLUG", type=Slug())
@click.option("-o", "output", metavar="FILE", help="Where to write the picture  [default: SLUG_against.svg]")
@click.option("--open", "opens", is_flag=True, help="Open the picture.")
@click.pass_context
def compare(ctx: click.Context, path: str, puzzle: Puzzle, output: str | None, opens: bool) -> None:
    """Show the reference solution next to yours.

    Of a schedule: both runs in one picture. Of every puzzle: the lines that differ.
    """
    from lib import PuzzleError
    from puzzles.grading.submission import Submission, source_of
    from puzzles.tracks.references import as_lines, differing_lines, reference_file
    from puzzles.tracks.workbench import DrawOptions

    from .shared.workbench import CommandWorkbench

    slug, track = puzzle.slug, track_of(puzzle.slug)
    reference = reference_file(slug)
    if reference is None:
        raise click.UsageError(f"there is no reference solution of {slug} here")
    bench = CommandWorkbench(path, track, slug, TIME_LIMIT, opens)
    bench.require_readable(path)
    found = differing_lines(source_of(Submission.read(Path(path))), reference.read_text(encoding="utf-8"), slug)
    if found is None:
        raise click.ClickException(bench.absent())
    click.echo("\n".join(as_lines(found)))
    try:
        passed = track.draw(puzzle, DrawOptions(output or "", against=str(reference)), bench)
    except OptionError:  # a class or a layout has no such picture
        if output or opens:
            raise click.UsageError(f"there is no picture of {slug}; leave out -o and --open") from None
        return
    except PuzzleError as why:
        raise click.UsageError(str(why)) from None
    ctx.exit(0 if passed else 1)
