"""`puzzles check`: checks the puzzles of a folder, and finds what their references score."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from puzzles.sandbox.limits import Limits

from .shared.params import Seconds, usage_errors

if TYPE_CHECKING:
    from puzzles.custom import OwnFolder
    from puzzles.custom.check import Check, Finding
    from puzzles.sandbox.client import Client


@click.command()
@click.argument("folder", metavar="FOLDER", type=click.Path())
@click.option("--write", is_flag=True, help="Write what the reference scores: targets, a record, other sizes.")
@click.option("--only", metavar="SLUG", multiple=True, help="Check only this puzzle; may be repeated.")
@click.option("--time-limit", type=Seconds(), default=Limits().seconds, show_default=True,
              help="Seconds of wall time for each solution.")  # fmt: skip
@click.pass_context
def check(ctx: click.Context, folder: str, write: bool, only: tuple[str, ...], time_limit: float) -> None:
    """Check the puzzles of a folder, and say what is missing.

    Runs each reference and each wrong solution in the sandbox, and finds the tightest targets that the reference
    meets. With --write: writes targets that are missing, and what the reference of a schedule scores at the shown size
    (a record to beat) and at the others. Exits with 0 if nothing is wrong or missing, with 1 otherwise.
    """
    from puzzles.custom import folder_added
    from puzzles.grading.session import client_for
    from puzzles.sandbox.tiers import select_tier
    from puzzles.tracks.outcomes import listed

    limits = Limits(time_limit)
    with (
        usage_errors(),
        folder_added(folder, draft=True) as found,
        closing(client_for(select_tier(), limits)) as client,
    ):
        if unknown := [slug for slug in only if slug not in found.puzzles]:
            raise click.UsageError(f"{folder} has no puzzle '{unknown[0]}'; it has {listed([*found.puzzles])}")
        clean = [_checked(folder, found, slug, write, client, limits) for slug in only or found.puzzles]
    ctx.exit(0 if all(clean) else 1)


def _checked(folder: str, found: OwnFolder, slug: str, write: bool, client: Client, limits: Limits) -> bool:
    """Checks a puzzle, shows what was found, and returns whether all is well."""
    from puzzles.custom import add_folder
    from puzzles.custom.puzzle_file import shown
    from puzzles.custom.writing import can_be_written, write_rows, write_targets

    made, findings = _found(found, slug, client, limits)
    wrote = []
    if write and can_be_written(made.own):
        if made.targets and not made.own.has_targets:
            write_targets(made.own, made.targets)
            wrote.append("the targets")
        if made.rows is not None:
            write_rows(made.own, made.rows)
            wrote.append("what the reference scores")
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
    from puzzles.sandbox.tiers import select_tier
    from puzzles.tracks import track_of

    own = found.puzzles[slug]
    require_expectations(own, dict.fromkeys(("over_target", "failed", *REASONS, *track_of(slug).reasons)))
    made = Check(own, limits, client, select_tier())
    return made, list(made.findings())
