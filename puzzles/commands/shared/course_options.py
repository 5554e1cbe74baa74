"""What `puzzles grade` and `puzzles class` share: how files are graded, who handed in what, and where reports go."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .params import colour_option, limit_option, several, usage_errors
from .puzzle_params import SLUG_TEXT, add_folders

if TYPE_CHECKING:
    from puzzles.course.course_file import Course
    from puzzles.course.handed_in import Submitted
    from puzzles.course.points import Late, Scoring
    from puzzles.reports.class_pages import ClassPages


def _read_course(ctx: click.Context, param: click.Parameter, folder: Path | None) -> Course | None:
    """Click's callback: reads the course, and adds its puzzles before other parameters look for them."""
    if folder is None:
        return None
    from puzzles.course.course_file import read_course

    with usage_errors():
        course = read_course(folder)
    add_folders(ctx, tuple(map(str, course.puzzles)))
    return course


COURSE: dict[str, Any] = {
    "metavar": "FOLDER",
    "type": click.Path(exists=True, file_okay=False, path_type=Path),
    "is_eager": True,
    "callback": _read_course,
}
course_argument = click.argument("course", **COURSE)
course_option = click.option("--course", help="Points, puzzles and rules of this folder's course.toml.", **COURSE)

grading_options = several(
    click.option(
        "--puzzle", "wanted", metavar="SLUG", type=SLUG_TEXT, multiple=True,
        help="Grade only this puzzle, or the puzzles of a track or chapter; may be repeated.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else."),
    click.option("--why", is_flag=True, help="Explain a pass: margins, bounds, notes, calls, and the peak's values."),
    click.option(
        "-o", "outputs", metavar="FILE|FOLDER", multiple=True,
        help="Write a report; may be repeated: a folder (an index and a page for each student), .html (one page), .csv "
        "(a table) or .json (Gradescope's results).",
    ),
    colour_option,
    click.option("--traces", metavar="FOLDER", help="Save the traces of schedules, for 'puzzles verify'."),
    limit_option,
    click.option("--trust", is_flag=True, help="Grade other people's code even if nothing protects your files."),
    click.option(
        "-j", "--jobs", type=click.IntRange(1, 1024), help="How many files to grade at once  [default: one a core]"
    ),
    click.option("--resume", is_flag=True, help="Continue an interrupted run of the same command."),
)  # fmt: skip


def submitted_from(paths: Sequence[str], course: Course) -> tuple[list[Submitted], Late | None]:
    """The submissions at paths, with their students, and the rule on what is late, with the extensions of these
    students. Warns of doubtful submissions and extensions on the error stream."""
    from puzzles.course.handed_in import as_one, handed_in, with_times
    from puzzles.course.roster import call, read_roster

    submitted = handed_in(paths, course.each_file)
    warnings: list[str] = []
    late = course.late
    if course.one_student:
        submitted = as_one(submitted, paths[0])
    elif course.roster:
        submitted, warnings = call(submitted, read_roster(course.roster))
    if late:
        submitted = with_times(submitted)
        late, doubtful = late.of_class(entry.student for entry in submitted)
        warnings += [f"the extension for '{word}' matches no student here, or several" for word in doubtful]
    for warning in warnings:
        click.echo(f"Warning: {warning}.", err=True)
    return submitted, late


ENDINGS = {".html": "html", ".htm": "html", ".csv": "csv", ".json": "gradescope"}


def outputs_of(paths: Sequence[str], course: Course) -> dict[str, str]:
    """The paths of reports by their formats, those of -o before those of the course; a folder of pages is `pages`."""
    outputs: dict[str, str] = {}
    for path in paths:
        suffix = Path(path).suffix.lower()
        is_pages = path and (os.path.isdir(path) or not suffix or not os.path.basename(path))
        name = "pages" if is_pages else ENDINGS.get(suffix)
        if name is None:
            raise click.UsageError(
                f"-o cannot tell what to write to '{path}'; end the name with .html, .csv or .json (Gradescope), or "
                "with / for a folder of pages"
            )
        if same := outputs.get(name):
            raise click.UsageError(f"-o writes one file of each kind; choose {same} or {path}")
        outputs[name] = path
    of_course = {"gradebook": course.gradebook, "pages": course.pages}
    return {**{name: str(path) for name, path in of_course.items() if path}, **outputs}


def class_pages(
    folder: str, submitted: Sequence[Submitted], options: Mapping[str, Any], scoring: Scoring
) -> ClassPages:
    from puzzles.course.handed_in import page_labels
    from puzzles.reports.class_pages import ClassPages, PageNames

    names, paths = PageNames(Path(folder), page_labels(submitted)), [entry.path for entry in submitted]
    keeps, colour = bool(options["traces"]) or len(submitted) == 1, options["colour"] or "layer"
    return ClassPages(folder, names, paths, scoring, keeps, colour)
