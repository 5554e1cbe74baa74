"""`puzzles grade`: the verdict on a file, or on a class."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from puzzles.custom import folders
from puzzles.failure import sanitized
from puzzles.grading.progress import is_own_file, remember
from puzzles.grading.verdict import Graded
from puzzles.reports.screen import next_command, print_wrapped
from puzzles.sandbox.client import protection
from puzzles.sandbox.visible_files import INSTALL_ROOT

from .shared.course_options import class_pages, course_argument, grading_options, outputs_of, submitted_from
from .shared.game_options import puzzle_slugs
from .shared.params import abandon_output, limits_from, require_picture, terminal, usage_errors

if TYPE_CHECKING:
    from puzzles.course.course_file import Course
    from puzzles.course.handed_in import Submitted
    from puzzles.course.points import Scoring


@click.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(exists=True))
@grading_options
@click.option(
    "--one-student", is_flag=True, help="All files are by one student; the best solution of each puzzle counts."
)
@click.pass_context
def grade(ctx: click.Context, /, paths: tuple[str, ...], one_student: bool, **options: Any) -> None:
    """Grade files, notebooks, or folders of them.

    In a folder, each file and each folder directly inside it is a submission; its best solution of each puzzle counts.
    The exit code is 0 if every attempted puzzle passed, and 1 if one did not or if nothing was attempted. For points,
    a roster and pages see 'puzzles class -h'.
    """
    from puzzles.course.course_file import Course

    _grade(ctx, paths, options.pop("wanted"), options, Course(one_student=one_student))


@click.command("class")
@course_argument
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(exists=True))
@grading_options
@click.pass_context
def class_(ctx: click.Context, /, course: Course, paths: tuple[str, ...], **options: Any) -> None:
    """Grade a class by the course.toml in FOLDER.

    The file says where the submissions are, what puzzles are worth, what is late, who takes the course, and where pages
    and the gradebook go. PATH is graded instead of its submissions. The puzzles that have points are graded, or all.
    """
    if not paths:
        missing = [path for path in course.submissions if not path.exists()]
        if missing:
            raise click.UsageError(f"{course.file}: there are no submissions in {missing[0]}; name others, or a PATH")
        paths = tuple(map(str, course.submissions))
    wanted = options.pop("wanted") or tuple(course.points)
    _grade(ctx, paths, wanted, options, course)


def _grade(
    ctx: click.Context, paths: tuple[str, ...], wanted: tuple[str, ...], options: Mapping[str, Any], course: Course
) -> None:
    from puzzles.course.handed_in import Gathering
    from puzzles.grading import verdict
    from puzzles.grading.batch import grade_all
    from puzzles.grading.checkpoint import Checkpoint, GradingJob
    from puzzles.grading.discover import hard_links
    from puzzles.reports.export import write_reports

    outputs = outputs_of(options["outputs"], course)
    require_picture(options["colour"], {"html", "pages"} & {*outputs}, "-o page.html")
    _require_trust(options["trust"], paths)
    with usage_errors():
        submitted, late = submitted_from(paths, course)
        scoring = replace(course.scoring(), late=late)
    files = [file for entry in submitted for file in entry.files]
    if "gradescope" in outputs:
        _require_one(submitted, outputs["gradescope"])
    alone = len(submitted) == len(files) == 1
    slugs = tuple(dict.fromkeys(slug for name in wanted for slug in puzzle_slugs(name)))
    own = tuple((str(folder.path), folder.digest) for folder in folders())
    keep = _is_kept(len(submitted), outputs, options)
    job = GradingJob(slugs, limits_from(options), course.strict, keep, own)
    pages = class_pages(outputs.pop("pages"), submitted, options, scoring) if "pages" in outputs else None
    gathering = Gathering(submitted, slugs, scoring.earned, pages.add if pages else lambda graded: graded)
    several = Checkpoint.of([file.path for file in files], job, options["resume"]) if len(files) > 1 else None
    with several or nullcontext():
        grade_all(files, job, options["jobs"], several, gathering.add)
        graded = gathering.all()
        problems = [_shown(lambda: _show(graded, options, scoring))]
        wrote, failed = write_reports(graded, outputs, scoring, options["traces"], options["colour"] or "layer", slugs)
        if pages:
            failed.append(pages.finish(graded))
            wrote.append("" if failed[-1] else f"Wrote {pages.folder / 'index.html'} and a page for each submission.")
        if several:
            several.finish()
    problems += failed
    if not options["as_json"]:
        problems.append(
            _shown(lambda: click.echo("".join(f"{sentence}\n" for sentence in wrote if sentence), nl=False))
        )
    for names in hard_links(files):
        paths_of_one = " and ".join(map(sanitized, names))
        click.echo(
            f"Warning: {paths_of_one} are one file under several names (hard links); it was graded for each.", err=True
        )
    if alone:
        _remember(graded[0], tell=not (options["as_json"] or outputs or pages))
    for problem in filter(None, problems):
        click.echo(f"Error: {problem}", err=True)
    ctx.exit(2 if any(problems) else 0 if verdict.all_passed(graded) else 1)


def _require_one(submitted: Sequence[Submitted], path: str) -> None:
    """Refuses the results of a class where an autograder takes those of one student."""
    if not submitted:
        raise click.UsageError(f"there is no submission to write {path} for")
    if len(submitted) > 1:
        raise click.UsageError(
            f"{path} is for an autograder, which takes the results of one student, but there are "
            f"{len(submitted)} submissions; grade one of them, or add --one-student if all are by the same student"
        )


def _show(graded: list[Graded], options: Mapping[str, Any], scoring: Scoring) -> None:
    from puzzles.grading import verdict

    if options["as_json"]:
        click.echo(json.dumps(verdict.as_json(graded, options["why"], scoring.facts), indent=2))
    else:
        from puzzles.reports.terminal import report

        report(terminal(), graded, options["why"], scoring)
    sys.stdout.flush()


def _shown(show: Callable[[], None]) -> str:
    """Shows the results; a sentence if that fails, so that they can still be written and remembered."""
    try:
        show()
    except (Exception, SystemExit) as why:
        abandon_output()
        if not isinstance(why, BrokenPipeError | SystemExit):
            return (
                f"cannot show the results: {sanitized(getattr(why, 'strerror', '') or f'{type(why).__name__}: {why}')}"
            )
    return ""  # also where the reader of a pipe has seen enough, of which rich makes a SystemExit


MAX_PICTURES = 20
"""Files with their timelines on one HTML page; a class gets the table and the messages."""


def _is_kept(files: int, outputs: Collection[str], options: Mapping[str, Any]) -> bool:
    """True if runs are kept with their verdicts: for traces, pictures, or the feedback on a single file."""
    return bool(
        options["traces"]
        or ("html" in outputs and files <= MAX_PICTURES)
        or {"pages", "gradescope"} & {*outputs}
        or (files == 1 and not options["as_json"])
    )


def _require_trust(trust: bool, paths: tuple[str, ...]) -> None:
    """Refuses folders of other people's code where nothing protects the user's files from it."""
    if trust or protection().guards_files:
        return
    for folder in filter(Path.is_dir, map(Path, paths)):
        if not (_is_reference(str(folder)) or _is_own_work(folder)):
            raise click.UsageError(
                f"nothing here protects your files from the code in {folder}: it can read and change every file that "
                f"you can. If you trust all of it, add --trust; {_advice()}"
            )


def _advice() -> str:
    import platform  # here, because it is slow to import

    if platform.system() == "Windows":
        return "or grade in WSL 2, where a sandbox protects you"
    return "'puzzles doctor' shows what would protect you"


def _is_own_work(folder: Path) -> bool:
    """True for the current folder, if all submissions in it belong to the user."""
    from puzzles.grading.discover import submissions

    if folder.resolve() != Path.cwd():
        return False
    files = submissions([str(folder)])
    return not hasattr(os, "getuid") or all(os.lstat(file.path).st_uid == os.getuid() for file in files)


def _remember(graded: Graded, tell: bool) -> None:
    remember(graded)
    if tell and graded.attempted and not is_own_file(graded.path) and not _is_reference(graded.path):
        watch = next_command("watch", graded.path)
        print_wrapped(terminal(), f"This file does not count for your stars yet. Run '{watch}' to add it.")


def _is_reference(path: str) -> bool:
    return Path(path).resolve().is_relative_to(INSTALL_ROOT / "solutions")
