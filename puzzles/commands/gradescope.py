"""`puzzles gradescope`: the file that Gradescope takes as an autograder."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from lib.values.algebra import counted
from puzzles.custom import folders
from puzzles.tracks.outcomes import amount

from .shared.course_options import course_option
from .shared.game_options import puzzle_slugs
from .shared.params import seconds_text, usage_errors
from .shared.puzzle_params import SLUG_TEXT

if TYPE_CHECKING:
    from puzzles.course.course_file import Course


@click.command()
@course_option
@click.option("-o", "output", metavar="FILE", default="autograder.zip", show_default=True, help="Where to write.")
@click.option(
    "--puzzle", "wanted", metavar="SLUG", type=SLUG_TEXT, multiple=True, help="A puzzle, track or chapter to grade."
)
@click.option("--with", "packages", metavar="PACKAGE", multiple=True,
              help="Let submissions import this package; may be repeated.")  # fmt: skip
@click.option("--time-limit", type=seconds_text, help="Seconds of wall time for each puzzle.")
@click.option("--wheel", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="The wheel of the game  [default: built from this installation]")  # fmt: skip
@click.option("--wheels", metavar="FOLDER", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="Wheels of the game's dependencies, so that setup needs no network.")  # fmt: skip
def gradescope(
    course: Course | None,
    output: str,
    wanted: tuple[str, ...],
    packages: tuple[str, ...],
    time_limit: float | None,
    wheel: Path | None,
    wheels: Path | None,
) -> None:
    """Build an autograder for Gradescope: one file to upload.

    It grades the puzzles that have points in the course.toml of --course, or those of --puzzle. --puzzles adds a folder
    of your own puzzles.
    """
    from puzzles.course.course_file import NO_COURSE
    from puzzles.gradescope.autograder import Autograder, WheelError, is_our_wheel, our_wheel

    course = course or NO_COURSE
    slugs = list(dict.fromkeys(slug for name in wanted or course.points for slug in puzzle_slugs(name)))
    if not slugs:
        raise click.UsageError("say what it grades: --puzzle fsdp, or --course FOLDER, whose course.toml has [points]")
    with usage_errors():
        scoring = course.scoring()
    for package in packages:
        if not re.fullmatch(r"[A-Za-z0-9][\w.\[\],<>=!~-]*", package):
            raise click.UsageError(f"--with takes the name of a package, as pip does; got '{package}'")
    options = ["--limit", f"time={time_limit:g}s"] if time_limit else []
    if wheel and not is_our_wheel(wheel):
        raise click.UsageError(
            f"{wheel} is not a wheel of the game (training_puzzles-*.whl); leave out --wheel to build one"
        )
    others = sorted(wheels.glob("*.whl")) if wheels else []
    if wheels and not others:
        raise click.UsageError(f"{wheels} has no wheels; 'pip download -d {wheels} GAME.whl' fetches them")
    own = [folder.path for folder in folders()]
    try:
        with TemporaryDirectory() as folder:
            game = wheel or our_wheel(Path(folder))
            kept = [one for one in others if not one.name.startswith("training_puzzles-")]
            points = {slug: scoring.most(slug) for slug in slugs}
            Autograder(points, course, options, own, game, kept, packages).write(Path(output))
    except WheelError as why:
        raise click.ClickException(str(why)) from None
    except OSError as why:
        raise click.ClickException(f"cannot write {output}: {why.strerror or why}") from None
    total = sum(points.values())
    click.echo(f"Wrote {output}, with {counted(len(slugs), 'puzzle')} and {amount(total, 'points')}.")
    click.echo("Upload it as the autograder of a programming assignment.")
