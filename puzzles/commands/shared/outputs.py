"""Where `puzzles grade` writes its reports: files by their endings, and the folder of a class's pages."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .course_options import comments_from

if TYPE_CHECKING:
    from puzzles.course.handed_in import Submitted
    from puzzles.course.points import Scoring
    from puzzles.reports.class_pages import ClassPages, PageNames

FORMATS = ("junit", "gradescope", "csv", "html", "gradebook", "canvas", "same_work", "prairielearn", "classroom")
ENDINGS = {".html": "html", ".htm": "html", ".csv": "csv", ".xml": "junit", ".json": "gradescope"}


def sort_outputs(options: dict[str, Any]) -> None:
    """Files each path of -o under the option of its format."""
    for path in options.pop("outputs"):
        suffix = Path(path).suffix.lower()
        is_pages = path and (os.path.isdir(path) or not suffix or not os.path.basename(path))
        name = "html" if is_pages else ENDINGS.get(suffix)
        if name is None:
            raise click.UsageError(
                f"-o does not know what to write to '{path}'; end it in .html, .csv, .xml (JUnit) or .json (for "
                "Gradescope), or in / for a folder of pages"
            )
        if options[name]:
            raise click.UsageError(f"-o writes one file of a kind: choose {options[name]} or {path}")
        options[name] = path


def page_names(submitted: Sequence[Submitted], options: Mapping[str, Any]) -> PageNames:
    """Names of pages, and aliases, of all submissions."""
    from puzzles.reports.class_pages import PageNames

    folder = options["html"] if options["html"] and is_folder(options["html"]) else None
    return PageNames(folder and Path(folder), {one.path: one.key or one.path for one in submitted})


def class_pages(
    submitted: Sequence[Submitted],
    names: PageNames,
    aliases: Mapping[str, str] | None,
    options: Mapping[str, Any],
    scoring: Scoring,
) -> ClassPages | None:
    """The folder of pages, if that is wanted."""
    if not (options["html"] and is_folder(options["html"])):
        return None
    from puzzles.reports.class_pages import ClassPages

    called = {one.path: aliases[one.path] if aliases else one.path for one in submitted}
    comments = {called[path]: said for path, said in comments_from(submitted, options).items()}
    paths = {name: path for path, name in called.items()}
    keeps, colour = bool(options["traces"]) or len(submitted) == 1, options["colour"] or "layer"
    return ClassPages(options["html"], names, paths, comments, scoring, keeps, colour, options["link_class"])


def is_folder(path: str) -> bool:
    """True for the path of a folder of pages: it is one already, or its name does not end as a page's."""
    return os.path.isdir(path) or not os.path.basename(path) or ENDINGS.get(Path(path).suffix.lower()) != "html"
