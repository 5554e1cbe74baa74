"""The options of a course: who handed in what, what it is worth, and where reports go."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from .params import add_folders, several, usage_errors

if TYPE_CHECKING:
    from puzzles.course.handed_in import Submitted
    from puzzles.course.points import Scoring
    from puzzles.reports.class_pages import ClassPages

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
COURSE = "puzzles.course"
"""Where click's context keeps the course."""


def _read_course(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    """Click's callback of --course: adds its puzzles before other parameters look for them."""
    if path is None:
        return
    from puzzles.course.course_file import read_course

    with usage_errors():
        course = read_course(path)
    add_folders(ctx, tuple(map(str, course.puzzles)))
    ctx.meta[COURSE] = course


def _share(name: str, default: float, words: str) -> Any:
    return click.option(
        name, type=click.FloatRange(0, 1), default=default, show_default=True, metavar="SHARE", help=words
    )


points_options = several(
    click.option(
        "--points", metavar="SLUG=N,...", default="", help="Points for a puzzle, chapter or track  [default: 1 each]"
    ),
    _share("--partial", 0.5, "Share of the points for a correct solution that is over target."),
    _share("--shown-size", 0.5, "Share of the points for a solution that works only at the puzzle's shown size."),
    click.option("--strict", is_flag=True, help="Fail a solution that works only at the puzzle's shown size."),
    click.option(
        "--third-star",
        type=click.FloatRange(0, 10**6),
        default=0.0,
        show_default=True,
        metavar="POINTS",
        help="Points that a third star adds.",
    ),
)
"""The options that `puzzles gradescope` passes on as well."""

course_options = several(
    click.option(
        "--course",
        metavar="FOLDER",
        type=click.Path(exists=True, path_type=Path),
        is_eager=True,
        expose_value=False,
        callback=_read_course,
        help="Use the points, roster and puzzles in this folder's course.toml.",
    ),
    click.option(
        "--roster",
        metavar="FILE",
        type=FILE,
        help="CSV with a row for each student (name, id, e-mail, section, group), or Canvas's export. Adds students "
        "without a submission, and merges groups.",
    ),
    click.option(
        "--one-student", is_flag=True, help="All files are by one student; the best solution of each puzzle counts."
    ),
    click.option("--each-file", is_flag=True, help="Every file, at any depth, is a submission."),
    points_options,
    click.option(
        "--late",
        metavar="due=TIME,...",
        help="Take off points for late work: due=2026-11-20T18:00,per-day=10%,grace=15m,extensions.csv",
    ),
    click.option(
        "--gradebook",
        metavar="FILE",
        help="Write a CSV with a row for each student, for Canvas, Moodle and others.",
    ),
)


def with_course(ctx: click.Context, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options, with the options of --course where the command line has none; and the rule on what is late."""
    from puzzles.course.points import parse_late

    course = ctx.meta.get(COURSE)
    given = {name for name in options if ctx.get_parameter_source(name) != ParameterSource.DEFAULT}
    taken = {name: value for name, value in course.options.items() if name not in given} if course else {}
    with usage_errors():
        late = parse_late(options["late"]) if options["late"] else course.late if course else None
    stated = {"points", "partial", "shown_size", "strict", "third_star", "late"} & (given | set(taken))
    is_stated = bool(stated or late)
    return {**options, **taken, "late": late, "is_stated": is_stated, "is_course": course is not None}


def submitted_from(paths: Sequence[str], options: dict[str, Any]) -> list[Submitted]:
    """The submissions at paths, with their students; warns of doubtful ones on the error stream. The rule on what is
    late keeps the extensions of these students."""
    from puzzles.course.handed_in import as_one, handed_in, with_times
    from puzzles.course.roster import call, read_roster

    if options["one_student"] and (options["each_file"] or options["roster"]):
        other = "--each-file" if options["each_file"] else "--roster"
        raise click.UsageError(f"--one-student and {other} contradict each other; keep one of them")
    submitted = handed_in(paths, options["each_file"])
    warnings: list[str] = []
    if options["one_student"]:
        submitted = as_one(submitted, paths[0])
    elif options["roster"]:
        with usage_errors():
            submitted, warnings = call(submitted, read_roster(options["roster"]))
    if options["late"]:
        submitted = with_times(submitted)
        options["late"], doubtful = options["late"].of_class(one.student for one in submitted)
        warnings += [f"the extension for '{word}' matches no student here, or several" for word in doubtful]
    for warning in warnings:
        click.echo(f"Warning: {warning}.", err=True)
    return submitted


def scoring_from(options: Mapping[str, Any]) -> Scoring:
    from puzzles.course.points import Scoring, parse_points

    shares = (options["partial"], options["third_star"], options["shown_size"])
    return Scoring(parse_points(options["points"]), *shares, options["late"], options["is_stated"])


def wanted_in(options: Mapping[str, Any], wanted: Sequence[str]) -> Sequence[str]:
    """The names of the puzzles to grade: those named; else those that the course gives points for."""
    if wanted or not options["is_course"]:
        return wanted
    return [pair.partition("=")[0] for pair in options["points"].split(",") if pair]


ENDINGS = {".html": "html", ".htm": "html", ".csv": "csv", ".json": "gradescope"}


def outputs_of(options: Mapping[str, Any]) -> dict[str, str]:
    """The paths of -o and --gradebook by their formats; a folder of pages is `pages`."""
    found = {"gradebook": options["gradebook"]} if options["gradebook"] else {}
    for path in options["outputs"]:
        suffix = Path(path).suffix.lower()
        is_pages = path and (os.path.isdir(path) or not suffix or not os.path.basename(path))
        name = "pages" if is_pages else ENDINGS.get(suffix)
        if name is None:
            raise click.UsageError(
                f"-o cannot tell what to write to '{path}'; end the name with .html, .csv or .json (Gradescope), or "
                "with / for a folder of pages"
            )
        if same := found.get(name):
            raise click.UsageError(f"-o writes one file of each kind; choose {same} or {path}")
        found[name] = path
    return found


def class_pages(
    folder: str, submitted: Sequence[Submitted], options: Mapping[str, Any], scoring: Scoring
) -> ClassPages:
    from puzzles.course.handed_in import page_labels
    from puzzles.reports.class_pages import ClassPages, PageNames

    names, paths = PageNames(Path(folder), page_labels(submitted)), [one.path for one in submitted]
    keeps, colour = bool(options["traces"]) or len(submitted) == 1, options["colour"] or "layer"
    return ClassPages(folder, names, paths, scoring, keeps, colour)
