"""`puzzles grade` and `class`: the verdict on a file, or on a class; `gradescope`: an autograder to upload; `doctor`:
how this machine can isolate other people's code.

A class has its rules in `course.toml`, and every run of the command reads them: points, lateness, the roster, pages. So
`grade` itself needs few options. A run of many files keeps its verdicts as it goes, so that an interruption loses
nothing. If showing the results fails, they are still written and remembered. Where nothing protects the user's files,
folders of other people's code are refused unless --trust is added; files that are named, and the user's own folder, are
not. Rejected: rules as options, which a teacher would have to repeat exactly in every call.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from shutil import get_terminal_size
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from lib.errors import install_command
from lib.ledger.algebra import counted
from puzzles.custom import folders
from puzzles.failure import sanitized
from puzzles.judge import verdict
from puzzles.judge.progress import is_own_file, remember
from puzzles.judge.verdict import NOTHING_STATED, Graded
from puzzles.sandbox.client import can_fork, protection
from puzzles.sandbox.visible_files import INSTALL_ROOT
from puzzles.text_lines import next_command, print_wrapped, wrapped
from puzzles.tracks.outcomes import amount

from .params import (
    abandon_output,
    colour_option,
    limit_option,
    limits_from,
    require_picture,
    seconds_text,
    several,
    terminal,
    usage_errors,
)
from .puzzle_params import SLUG_TEXT, add_folders, puzzle_slugs

if TYPE_CHECKING:
    from puzzles.judge.handed_in import Submitted
    from puzzles.judge.verdict import Scoring
    from puzzles.teaching.class_pages import ClassPages
    from puzzles.teaching.course_file import Course, Late


# --- Options ---


def _read_course(ctx: click.Context, param: click.Parameter, folder: Path | None) -> Course | None:
    """Click's callback: reads the course, and adds its puzzles before other parameters look for them."""
    if folder is None:
        return None
    from puzzles.teaching.course_file import read_course

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
    from puzzles.judge.handed_in import as_one, handed_in, with_times

    submitted = handed_in(paths, course.each_file)
    warnings: list[str] = []
    late = course.late
    if course.one_student:
        submitted = as_one(submitted, paths[0])
    elif course.roster:
        from puzzles.teaching.roster import call, read_roster  # here, since few classes have a roster

        submitted, warnings = call(submitted, read_roster(course.roster))
    if late:
        submitted = with_times(submitted)
        late, doubtful = late.of_class(entry.student for entry in submitted)
        warnings += [f"the extension for '{word}' matches no student here, or several" for word in doubtful]
    for warning in warnings:
        click.echo(f"Warning: {warning}.", err=True)
    return submitted, late


ENDINGS = {".html": "html", ".htm": "html", ".csv": "csv", ".json": "gradescope"}


def outputs_of(paths: Sequence[str], course: Course | None) -> dict[str, str]:
    """The paths of reports by their formats, those of -o before those of a course; a folder of pages is `pages`."""
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
    of_course = {"gradebook": course.gradebook, "pages": course.pages} if course else {}
    return {**{name: str(path) for name, path in of_course.items() if path}, **outputs}


def class_pages(
    folder: str, submitted: Sequence[Submitted], options: Mapping[str, Any], scoring: Scoring
) -> ClassPages:
    from puzzles.judge.handed_in import page_labels
    from puzzles.teaching.class_pages import ClassPages, PageNames

    names, paths = PageNames(Path(folder), page_labels(submitted)), [entry.path for entry in submitted]
    keeps, colour = bool(options["traces"]) or len(submitted) == 1, options["colour"] or "layer"
    return ClassPages(folder, names, paths, scoring, keeps, colour)


# --- Files, and a class ---


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
    _grade(ctx, paths, options.pop("wanted"), options, one_student=one_student)


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
    ctx: click.Context,
    paths: tuple[str, ...],
    wanted: tuple[str, ...],
    options: Mapping[str, Any],
    course: Course | None = None,
    one_student: bool = False,
) -> None:
    from puzzles.judge.batch import grade_all
    from puzzles.judge.checkpoint import Checkpoint, GradingJob
    from puzzles.judge.handed_in import Gathering, as_one, handed_in
    from puzzles.judge.submission import hard_links

    outputs = outputs_of(options["outputs"], course)
    require_picture(options["colour"], {"html", "pages"} & {*outputs}, "-o page.html")
    _require_trust(options["trust"], paths)
    with usage_errors():
        if course:
            submitted, late = submitted_from(paths, course)
            scoring = replace(course.scoring(), late=late)
        else:
            submitted, scoring = handed_in(paths), NOTHING_STATED
            submitted = as_one(submitted, paths[0]) if one_student else submitted
    files = [file for entry in submitted for file in entry.files]
    if "gradescope" in outputs:
        _require_one(submitted, outputs["gradescope"])
    alone = len(submitted) == len(files) == 1
    slugs = tuple(dict.fromkeys(slug for name in wanted for slug in puzzle_slugs(name)))
    own = tuple((str(folder.path), folder.digest) for folder in folders())
    keep = _is_kept(len(submitted), outputs, options)
    job = GradingJob(slugs, limits_from(options), bool(course and course.strict), keep, own)
    pages = class_pages(outputs.pop("pages"), submitted, options, scoring) if "pages" in outputs else None
    gathering = Gathering(submitted, slugs, scoring.earned, pages.add if pages else lambda graded: graded)
    several = Checkpoint.of([file.path for file in files], job, options["resume"]) if len(files) > 1 else None
    with several or nullcontext():
        grade_all(files, job, options["jobs"], several, gathering.add)
        graded = gathering.all()
        problems = [_shown(lambda: _show(graded, options, scoring))]
        wrote, failed = list[str](), list[str]()
        if outputs or options["traces"]:
            from puzzles.teaching.export import write_reports  # here, since most players look at the terminal only

            colour = options["colour"] or "layer"
            wrote, failed = write_reports(graded, outputs, scoring, options["traces"], colour, slugs)
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
    if options["as_json"]:
        click.echo(json.dumps(verdict.as_json(graded, options["why"], scoring.facts), indent=2))
    else:
        from puzzles.screens.terminal import report

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
    from puzzles.judge.submission import submissions

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


# --- An autograder ---


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
    from puzzles.teaching.course_file import Course
    from puzzles.teaching.gradescope import Autograder, WheelError, is_our_wheel, our_wheel

    course = course or Course()
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


# --- This machine ---


MARGIN = 13
"""Characters of a line before its finding."""


@click.command()
def doctor() -> None:
    """Show how submissions are sandboxed on this machine, and what is missing."""
    room = max(get_terminal_size().columns - MARGIN, MARGIN)
    for heading, finding in findings():
        for number, line in enumerate(wrapped(finding, room).splitlines()):
            click.echo(f"{'' if number else heading:<{MARGIN}}{line}")


def findings() -> Iterator[tuple[str, str]]:
    """Headings and findings; the heading is empty where it repeats."""
    import platform

    from puzzles.judge.batch import cores

    python = f"Python {platform.python_version()}"
    yield "system", f"{platform.system()} {platform.release()}, {python}, {counted(cores(), 'core')}"
    here = protection()
    yield "Landlock", f"version {here.landlock} of the kernel's interface" if here.landlock else "not on this system"
    yield "seccomp", "a filter denies system calls that no solution needs" if here.seccomp else "not on this system"
    yield "user", _user()
    yield from _rows("a run cannot", here.protections())
    yield from _rows("a run can", here.limitations())
    yield "limits", _limits()
    yield "leftovers", _leftovers()
    if not here.guards_files:
        yield "folders", "other people's code is graded only with --trust; your own in the current folder without"
    if platform.system() == "Windows":
        yield "Windows", "to grade other people's code, use WSL 2 (wsl --install), where all of this works as on Linux"
    yield "--on mpi", "installed" if find_spec("mpi4py") else f"not installed; {install_command('mpi')}"


def _rows(heading: str, lines: list[str]) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines):
        yield "" if number else heading, line


def _user() -> str:
    if not hasattr(os, "getuid"):
        return "runs have your own user id"
    if os.getuid() == 0:
        return "you are root; runs get a user id that owns nothing"
    return f"runs have your own user id, {os.getuid()}"


def _limits() -> str:
    if not can_fork():
        return "time and output; not memory, files or processes on this system"
    if sys.platform == "linux":
        return "time, memory, output, files, processes"
    return "time, output and files; not memory or processes on this system"


def _leftovers() -> str:
    if not can_fork():
        return "a run's processes are ended if they are still its children"
    if sys.platform == "linux":
        return "a run's processes are found and ended, even outside its process group; its folder is removed"
    return "a run's processes are ended if they stay in its process group; its folder is removed"
