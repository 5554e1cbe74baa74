"""The options of a course: who handed in what, and what it is worth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from puzzles.course.handed_in import Submitted
    from puzzles.course.points import Scoring

C = TypeVar("C", bound=Callable[..., Any])

OPTIONS = (
    click.option(
        "--roster",
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="CSV with a row for each student (name, id, e-mail, section, group), or Canvas's export: adds who is "
        "missing, and merges groups.",
    ),
    click.option("--one-student", is_flag=True, help="All files are one student's: the best of them count."),
    click.option("--each-file", is_flag=True, help="Every file is a submission, at any depth."),
    click.option(
        "--points", metavar="SLUG=N,...", default="", help="Points of a puzzle, chapter or track  [default: 1 each]"
    ),
    click.option(
        "--partial",
        type=click.FloatRange(0, 1),
        default=0.5,
        show_default=True,
        metavar="SHARE",
        help="Share of the points for a correct solution that is over target.",
    ),
)


def course_options(command: C) -> C:
    """Adds the options of a course."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def submitted_from(paths: Sequence[str], options: Mapping[str, Any]) -> list[Submitted]:
    """The submissions at paths, with their students; says on the error stream what is doubtful.

    Raises:
        click.UsageError: the roster cannot be used, or two options contradict each other.
    """
    from puzzles.course.handed_in import as_one, handed_in
    from puzzles.course.roll import call
    from puzzles.course.roster import RosterError, read_roster

    if options["one_student"] and (options["each_file"] or options["roster"]):
        other = "--each-file" if options["each_file"] else "--roster"
        raise click.UsageError(f"--one-student and {other} contradict each other; keep one of them")
    submitted = handed_in(paths, options["each_file"])
    if options["one_student"] and submitted:
        return as_one(submitted, paths[0])
    if options["roster"]:
        try:
            roll = call(submitted, read_roster(options["roster"]))
        except RosterError as why:
            raise click.UsageError(str(why)) from None
        for warning in roll.warnings:
            click.echo(f"Warning: {warning}.", err=True)
        return roll.submitted
    return submitted


def scoring_from(options: Mapping[str, Any]) -> Scoring:
    """What the options give for verdicts.

    Raises:
        click.UsageError: the points cannot be used.
    """
    from puzzles.course.points import Scoring, parse_points

    return Scoring(parse_points(options["points"]), options["partial"])
