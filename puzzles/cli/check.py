"""`puzzles new` begins a puzzle of your own; `puzzles check` checks a folder of them, and measures the references."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from puzzles.custom import OwnPuzzle, add_folder, folder_added, shown
from puzzles.sandbox.limits import Limits
from puzzles.teaching import clone
from puzzles.tracks import ALL, SHIPPED, TRACKS, track_of
from puzzles.tracks.outcomes import listed

from .params import seconds_text, usage_errors

if TYPE_CHECKING:
    from puzzles.sandbox.client import Client
    from puzzles.teaching.check import Check, Finding


@click.command()
@click.argument("folder", metavar="[FOLDER]", type=click.Path(), required=False)
@click.option("--write", is_flag=True, help="Write the reference's figures: targets, a record, other sizes.")
@click.option("--only", metavar="SLUG", multiple=True, help="Check only this puzzle; may be repeated.")
@click.option("--time-limit", type=seconds_text, default=Limits().seconds, show_default=True,
              help="Seconds of wall time for each solution.")  # fmt: skip
@click.pass_context
def check(ctx: click.Context, folder: str | None, write: bool, only: tuple[str, ...], time_limit: float) -> None:
    """Check the puzzles in a folder, and say what is missing. In a clone of the game, without FOLDER, check the game's
    own.

    Runs each reference and each wrong solution in the sandbox, and finds the tightest targets that the reference meets.
    --write adds missing targets and, for a schedule, the reference's figures at the shown size (a record to beat) and
    at the other sizes. The exit code is 0 if nothing is wrong or missing, and 1 otherwise.
    """
    from puzzles.judge.session import new_client

    limits = Limits(time_limit)
    with (
        usage_errors(),
        _to_check(folder) as (slugs, read),
        closing(new_client()) as client,
    ):
        if unknown := [slug for slug in only if slug not in slugs]:
            there = folder or "the game"
            raise click.UsageError(f"{there} has no puzzle '{unknown[0]}'; it has {listed([*slugs])}")
        clean = [_checked(slug, read, write, client, limits) for slug in only or slugs]
        if write and folder is None:
            clone.write_lists()
    ctx.exit(0 if all(clean) else 1)


@contextmanager
def _to_check(folder: str | None) -> Iterator[tuple[Collection[str], Callable[[str], OwnPuzzle]]]:
    """The puzzles of a folder, or in a clone without one those of the game, and what reads one of them again."""
    if folder is None:
        if not clone.is_here():
            raise click.UsageError("name the folder of your puzzles: puzzles check FOLDER")
        yield [slug for slug in ALL if slug in SHIPPED], clone.puzzle_in_clone
    else:
        with folder_added(folder, draft=True) as found:
            yield found.puzzles, lambda slug: add_folder(folder, draft=True).puzzles[slug]


def _checked(slug: str, read: Callable[[str], OwnPuzzle], write: bool, client: Client, limits: Limits) -> bool:
    """Checks a puzzle, prints the findings, and returns whether none is a problem."""
    from puzzles.teaching.writing import can_be_written, write_rows, write_targets

    made, findings = _found(read(slug), client, limits)
    wrote = []
    if write and can_be_written(made.own):
        if made.targets and not made.own.has_targets:
            write_targets(made.own, made.targets)
            wrote.append("the targets")
        if made.rows is not None:
            write_rows(made.own, made.rows)
            wrote.append("the reference's figures")
    if wrote:
        click.echo(f"Wrote {' and '.join(wrote)} to {shown(made.own.file)}.")
        made, findings = _found(read(slug), client, limits)
    problems = sum(finding.is_problem for finding in findings)
    click.echo(f"{slug}: {f'{problems} to do' if problems else 'ready'}")
    for finding in findings:
        click.echo(f"  {'!' if finding.is_problem else ' '} {finding.text}")
    return not problems


def _found(own: OwnPuzzle, client: Client, limits: Limits) -> tuple[Check, list[Finding]]:
    from puzzles.judge.session import REASONS
    from puzzles.teaching.check import Check, require_expectations

    require_expectations(own, dict.fromkeys(("over_target", "failed", *REASONS, *track_of(own.slug).judge.reasons)))
    made = Check(own, limits, client)
    return made, list(made.findings())


KINDS = list(TRACKS)


@click.command()
@click.argument("name")
@click.option(
    "--track",
    type=click.Choice(KINDS),
    default=KINDS[0],
    show_default=True,
    help="What its solutions are: schedules, classes, layouts or plans.",
)
@click.option(
    "-o",
    "folder",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder of your puzzles.  [default: my_puzzles; in a clone of the game, the game]",
)
@click.option("--chapter", default="", metavar="NAME", help="In a clone: the chapter.  [default: the track's last]")
def new(name: str, track: str, folder: Path | None, chapter: str) -> None:
    """Begin a puzzle of your own, called NAME.

    Writes a TOML file with a small working puzzle, its reference solution and two wrong solutions. Edit them, then run
    'puzzles check' to find the targets and to see what is missing. In a clone of the game, without -o, it is a puzzle
    of the game.
    """
    from puzzles.teaching.writing import begin, begin_in_clone

    in_clone = folder is None and clone.is_here()
    if chapter and not in_clone:
        raise click.UsageError("--chapter is for a puzzle of the game, in a clone of it and without -o")
    own = folder or Path("my_puzzles")
    with usage_errors():
        written = begin_in_clone(name, track, chapter) if in_clone else begin(name, track, own)
    click.echo("".join(f"Wrote {shown(path)}.\n" for path in written), nl=False)
    click.echo(f"Edit them, then: puzzles check {f'--only {name}' if in_clone else own}")
