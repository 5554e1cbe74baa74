"""`puzzles gradescope`: the file that Gradescope takes as an autograder."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from lib.values.algebra import counted
from puzzles.custom import folders
from puzzles.tracks.outcomes import amount

from .shared.course_options import points_options
from .shared.game_options import puzzle_slugs
from .shared.params import SLUG_TEXT, seconds_text


@click.command()
@click.option("-o", "output", metavar="FILE", default="autograder.zip", show_default=True, help="Where to write.")
@click.option(
    "--puzzle", "wanted", metavar="SLUG", type=SLUG_TEXT, multiple=True, help="A puzzle, track or chapter to grade."
)
@points_options
@click.option("--with", "packages", metavar="PACKAGE", multiple=True,
              help="Let submissions import this package; may be repeated.")  # fmt: skip
@click.option("--time-limit", type=seconds_text, help="Seconds of wall time for each puzzle.")
@click.option("--wheel", metavar="FILE", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="The wheel of the game  [default: built from this installation]")  # fmt: skip
@click.option("--wheels", metavar="FOLDER", type=click.Path(exists=True, file_okay=False, path_type=Path),
              help="Wheels of the game's dependencies, so that setup needs no network.")  # fmt: skip
def gradescope(
    output: str,
    wanted: tuple[str, ...],
    points: str,
    packages: tuple[str, ...],
    time_limit: float | None,
    wheel: Path | None,
    wheels: Path | None,
    **worth: Any,
) -> None:
    """Build an autograder for Gradescope: one file to upload.

    Choose what it grades with --points fsdp=10,gpipe=5 or with --puzzle. --puzzles adds a folder of your own puzzles.
    """
    from puzzles.course.points import parse_points
    from puzzles.gradescope.autograder import Autograder, WheelError, is_our_wheel, our_wheel

    by_slug = parse_points(points)
    names = [*wanted, *(pair.partition("=")[0] for pair in points.split(",") if pair)]
    slugs = list(dict.fromkeys(slug for name in names for slug in puzzle_slugs(name)))
    if not slugs:
        raise click.UsageError("say what it grades: --points fsdp=10,gpipe=5, or --puzzle fsdp")
    options = [word for slug in slugs for word in ("--puzzle", slug)]
    options += ["--points", ",".join(f"{slug}={by_slug[slug]:g}" for slug in slugs)]
    options += ["--partial", f"{worth['partial']:g}"]
    for name, default in (("shown_size", 0.5), ("third_star", 0.0)):
        options += [f"--{name.replace('_', '-')}", f"{worth[name]:g}"] if worth[name] != default else []
    options += ["--strict"] if worth["strict"] else []
    for package in packages:
        if not re.fullmatch(r"[A-Za-z0-9][\w.\[\],<>=!~-]*", package):
            raise click.UsageError(f"--with takes the name of a package, as pip does; got '{package}'")
    options += ["--limit", f"time={time_limit:g}s"] if time_limit else []
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
            Autograder(options, own, game, kept, packages).write(Path(output))
    except WheelError as why:
        raise click.ClickException(str(why)) from None
    except OSError as why:
        raise click.ClickException(f"cannot write {output}: {why.strerror or why}") from None
    total = sum(by_slug[slug] for slug in slugs)
    click.echo(f"Wrote {output}, with {counted(len(slugs), 'puzzle')} and {amount(total, 'points')}.")
    click.echo("Upload it as the autograder of a programming assignment.")
