"""Files of results for other programs: JUnit XML, CSV, Gradescope, HTML, and the traces that were judged.

Each is written by itself, so that one failure does not affect the others.
"""

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from puzzles.course.points import Scoring
from puzzles.course.same_work import Same
from puzzles.failure import sanitized
from puzzles.grading.verdict import Graded, Student
from puzzles.sandbox.tiers import IsolationTier
from puzzles.tracks import track_of
from puzzles.tracks.outcomes import counted

from .gradescope import Visibility, classroom, gradescope, prairielearn
from .html import report_page, same_work_page
from .listed_files import write
from .screen import next_command
from .standings import folder_of, name_in, slugs_of

MAX_NAME = 60
"""Characters of a file's name in the name of its folder of traces; systems allow 255 bytes."""

ASSIGNMENT = "Training Puzzles"

COLUMNS = tuple(
    "submission puzzle status reason stars timesteps peak_memory traffic message notes track figures points max_points "
    "days_late shown_size_only found_in".split()
)


def write_reports(
    graded: Sequence[Graded],
    wanted: Mapping[str, str | None],
    scoring: Scoring,
    tier: IsolationTier,
    traces: str | None,
    visibility: Visibility = Visibility(),  # noqa: B008  # frozen
    colour: str = "layer",
    slugs: Sequence[str] = (),
    assignment: str = ASSIGNMENT,
    same: Sequence[Same] = (),
) -> tuple[list[str], list[str]]:
    """Writes the files that are wanted; formats without a path are left out. Returns a sentence for each file that was
    written, and for each that could not be. `slugs` that were asked for are the columns of a gradebook;
    `assignment` is what Canvas calls all of them; `same` is the work that several submissions have in common."""
    writers: dict[str, Callable[[], str]] = {
        "junit": lambda: junit(graded, scoring),
        "gradescope": lambda: json.dumps(gradescope(graded[0], scoring, visibility), indent=2),
        "prairielearn": lambda: json.dumps(prairielearn(graded[0], scoring), indent=2),
        "classroom": lambda: json.dumps(classroom(graded[0], scoring), indent=2),
        "csv": lambda: table(graded, scoring),
        "gradebook": lambda: gradebook(graded, slugs or slugs_of(graded), scoring),
        "canvas": lambda: canvas(graded, slugs or slugs_of(graded), scoring, assignment),
        "html": lambda: report_page(graded, tier, colour, scoring),
        "same_work": lambda: same_work_page(same, graded),
    }
    wrote: list[str] = []
    problems: list[str] = []
    for name, path in wanted.items():
        if path and (problem := write(Path(path), writers[name])):
            problems.append(problem)
        elif path:
            wrote.append(f"Wrote {path}.")
    if traces:
        number, problem = _write_traces(graded, Path(traces))
        if number or not problem:
            wrote.append(_traces_text(number, traces))
        problems += [problem] if problem else []
    return wrote, problems


def _traces_text(number: int, folder: str) -> str:
    if number:
        verify = next_command("verify", "TRACE.json", "--puzzle", "SLUG")
        return f"Wrote {counted(number, 'trace')} to {folder}, for '{verify}'."
    return f"Nothing to write to {folder}: there was no finished run whose trace can be judged again."


def _write_traces(graded: Sequence[Graded], traces: Path) -> tuple[int, str]:
    """Writes the runs that `verify` can judge again: the runs of one file into the folder itself, the runs of several
    into a folder for each. Returns how many, and why not all: after one failure the others would fail too."""
    written = 0
    for number, file in enumerate(graded):
        folder = traces if len(graded) == 1 else traces / f"{number:04}_{sanitized(Path(file.path).stem)[:MAX_NAME]}"
        for verdict in file.verdicts:
            track = track_of(verdict.puzzle)
            name = track.saved_as(track.puzzle(verdict.puzzle)) if verdict.trace else ""
            if name and (problem := write(folder / name, lambda text=verdict.trace: text)):  # type: ignore[misc]
                return written, f"{problem}; the traces after it were not written"
            written += bool(name)
    return written, ""


def junit(graded: Sequence[Graded], scoring: Scoring) -> str:
    """One suite for each file, one case for each puzzle, with its figures as properties; over target is a failure, not
    attempted is skipped."""
    from xml.etree import ElementTree  # here, because few reports need it

    root = ElementTree.Element("testsuites")
    for file in graded:
        failed = sum(v.status in ("failed", "over_target") for v in file.verdicts)
        skipped = len(file.verdicts) - len(file.attempted)
        counts = {"tests": str(len(file.verdicts)), "failures": str(failed), "errors": "0", "skipped": str(skipped)}
        suite = ElementTree.SubElement(root, "testsuite", {"name": sanitized(file.path), **counts})
        for v in file.verdicts:
            case = ElementTree.SubElement(suite, "testcase", {"classname": sanitized(file.path), "name": v.puzzle})
            facts: dict[str, object] = {**v.figures, **scoring.facts(file, v)}
            facts |= {"shown_size_only": "true"} if v.shown_size_only else {}
            if facts:
                properties = ElementTree.SubElement(case, "properties")
                for name, value in facts.items():
                    ElementTree.SubElement(properties, "property", {"name": name, "value": str(value)})
            if v.status == "not_attempted":
                ElementTree.SubElement(case, "skipped", {"message": v.message or "not attempted"})
            elif v.status != "passed":
                attributes = {"type": v.reason or v.status, "message": v.message}
                ElementTree.SubElement(case, "failure", attributes).text = v.source
            if v.notes or v.printed:
                ElementTree.SubElement(case, "system-out").text = "\n".join((*v.notes, *v.printed))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def table(graded: Sequence[Graded], scoring: Scoring) -> str:
    """CSV. What a spreadsheet would take for a formula gets an apostrophe in front."""
    rows: list[Sequence[object]] = [COLUMNS]
    for file in graded:
        for v in file.verdicts:
            words: tuple[object, ...] = (
                *(sanitized(file.path), v.puzzle, v.status, v.reason, v.stars),
                *(v.timesteps, v.peak_memory, v.traffic, v.message, "; ".join(v.notes), v.track),
                " ".join(f"{name}={value}" for name, value in v.figures.items()),
                *(scoring.score(file, v), scoring.most(v.puzzle), scoring.days_late(file)),
                *("yes" if v.shown_size_only else "", sanitized(v.found_in)),
            )
            rows.append([*map(harmless, words)])
    return csv_text(rows)


WHO = ("name", "id", "email", "section", "group")
TOTALS = ("points", "max_points", "days_late", "submission")
CANVAS = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")


def gradebook(graded: Sequence[Graded], slugs: Sequence[str], scoring: Scoring) -> str:
    """A row for each student, with the points of each puzzle in `slugs`; each member of a group has a row."""
    rows: list[Sequence[object]] = [(*WHO, *slugs, *TOTALS)]
    most = _most(slugs, scoring)
    for one, who in _people(graded):
        points = _points(one, slugs, scoring)
        known = [harmless(getattr(who, name)) for name in WHO]
        submission = harmless(name_in(one, folder_of(graded)))
        rows.append((*known, *points, round(sum(points), 4), most, scoring.days_late(one), submission))
    return csv_text(rows)


def canvas(graded: Sequence[Graded], slugs: Sequence[str], scoring: Scoring, assignment: str = ASSIGNMENT) -> str:
    """The total of each student for an assignment. A roster that Canvas has exported gives its identifiers, and the
    full heading of the assignment, which ends with its number."""
    people = [*_people(graded)]
    headings = next((list(who.row) for _, who in people if who.row), [])
    title = next((one for one in headings if one.startswith(f"{assignment} (")), assignment)
    rows: list[Sequence[object]] = [(*CANVAS, title)]
    rows.append(("    Points Possible", *[""] * (len(CANVAS) - 1), _most(slugs, scoring)))
    for one, who in people:
        rows.append((*_canvas_cells(who), round(sum(_points(one, slugs, scoring)), 4)))
    return csv_text(rows)


def _canvas_cells(who: Student) -> list[object]:
    if CANVAS[0] in who.row:
        return [harmless(who.row[CANVAS[0]]), *(who.row.get(heading, "") for heading in CANVAS[1:])]
    login = next(iter(who.others), who.email)
    return [harmless(who.name), "", *map(harmless, (who.id, login, who.section))]


def _people(graded: Sequence[Graded]) -> Iterator[tuple[Graded, Student]]:
    return ((one, who) for one in graded for who in one.student.people)


def _points(graded: Graded, slugs: Sequence[str], scoring: Scoring) -> list[float]:
    found = {verdict.puzzle: scoring.score(graded, verdict) for verdict in graded.verdicts}
    return [found.get(slug, 0.0) for slug in slugs]


def _most(slugs: Sequence[str], scoring: Scoring) -> float:
    return sum(scoring.most(slug) for slug in slugs)


def csv_text(rows: Sequence[Sequence[object]]) -> str:
    """Rows as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def harmless(word: object) -> object:
    """A cell that no spreadsheet takes for a formula: such a one gets an apostrophe in front."""
    return f"'{word}" if str(word).startswith(("=", "+", "-", "@", "\t", "\r")) else word
