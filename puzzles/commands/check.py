"""`puzzles new` begins a puzzle of your own; `puzzles check` checks a folder of them, and measures the references."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from puzzles.custom import OwnFolder, add_folder, folder_added
from puzzles.custom.puzzle_file import shown
from puzzles.sandbox.limits import Limits
from puzzles.tracks import TRACKS, track_of
from puzzles.tracks.outcomes import listed

from .shared.params import seconds_text, usage_errors

if TYPE_CHECKING:
    from puzzles.custom.check import Check, Finding
    from puzzles.sandbox.client import Client


@click.command()
@click.argument("folder", metavar="FOLDER", type=click.Path())
@click.option("--write", is_flag=True, help="Write the reference's figures: targets, a record, other sizes.")
@click.option("--only", metavar="SLUG", multiple=True, help="Check only this puzzle; may be repeated.")
@click.option("--time-limit", type=seconds_text, default=Limits().seconds, show_default=True,
              help="Seconds of wall time for each solution.")  # fmt: skip
@click.pass_context
def check(ctx: click.Context, folder: str, write: bool, only: tuple[str, ...], time_limit: float) -> None:
    """Check the puzzles in a folder, and say what is missing.

    Runs each reference and each wrong solution in the sandbox, and finds the tightest targets that the reference meets.
    --write adds missing targets and, for a schedule, the reference's figures at the shown size (a record to beat) and
    at the other sizes. The exit code is 0 if nothing is wrong or missing, and 1 otherwise.
    """
    from puzzles.grading.session import new_client

    limits = Limits(time_limit)
    with (
        usage_errors(),
        folder_added(folder, draft=True) as found,
        closing(new_client()) as client,
    ):
        if unknown := [slug for slug in only if slug not in found.puzzles]:
            raise click.UsageError(f"{folder} has no puzzle '{unknown[0]}'; it has {listed([*found.puzzles])}")
        clean = [_checked(folder, found, slug, write, client, limits) for slug in only or found.puzzles]
    ctx.exit(0 if all(clean) else 1)


def _checked(folder: str, found: OwnFolder, slug: str, write: bool, client: Client, limits: Limits) -> bool:
    """Checks a puzzle, prints the findings, and returns whether none is a problem."""
    from puzzles.custom.writing import can_be_written, write_rows, write_targets

    made, findings = _found(found, slug, client, limits)
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
        made, findings = _found(add_folder(folder, draft=True), slug, client, limits)
    problems = sum(finding.is_problem for finding in findings)
    click.echo(f"{slug}: {f'{problems} to do' if problems else 'ready'}")
    for finding in findings:
        click.echo(f"  {'!' if finding.is_problem else ' '} {finding.text}")
    return not problems


def _found(found: OwnFolder, slug: str, client: Client, limits: Limits) -> tuple[Check, list[Finding]]:
    from puzzles.custom.check import Check, require_expectations
    from puzzles.grading.session import REASONS

    own = found.puzzles[slug]
    require_expectations(own, dict.fromkeys(("over_target", "failed", *REASONS, *track_of(slug).reasons)))
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
    default="my_puzzles",
    show_default=True,
    help="The folder of your puzzles.",
)
def new(name: str, track: str, folder: Path) -> None:
    """Begin a puzzle of your own, called NAME.

    Writes a TOML file with a small working puzzle, its reference solution and two wrong solutions. Edit them, then run
    'puzzles check' to find the targets and to see what is missing.
    """
    from puzzles.custom.writing import begin

    with usage_errors():
        written = begin(name, track, folder)
    click.echo("".join(f"Wrote {path}.\n" for path in written), nl=False)
    click.echo(f"Edit them, then: puzzles check {folder}")
