"""Files of results for other programs: CSV, Gradescope, HTML, and the traces that were judged.

Each is written by itself, so that one failure does not affect the others. Gradescope's format is described in
https://gradescope-autograders.readthedocs.io/en/latest/specs/.
"""

import base64
import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lib.ledger.algebra import counted
from puzzles.failure import sanitized
from puzzles.judge.verdict import Graded, Scoring, Verdict
from puzzles.screens.html import attempts, rendered, report_page, write
from puzzles.screens.standings import slugs_of
from puzzles.text_lines import next_command
from puzzles.tracks import track_of

COLUMNS = tuple(
    "submission puzzle status reason stars timesteps peak_memory traffic message notes track figures points max_points "
    "days_late shown_size_only found_in".split()
)


def write_reports(
    graded: Sequence[Graded],
    wanted: Mapping[str, str | None],
    scoring: Scoring,
    traces: str | None,
    colour: str = "layer",
    slugs: Sequence[str] = (),
) -> tuple[list[str], list[str]]:
    """Writes the files that are wanted, by format; one without a path is left out. Returns a sentence for each file
    that was written, and for each that could not be. `slugs` that were asked for are the columns of a gradebook."""
    writers: dict[str, Callable[[], str]] = {
        "gradescope": lambda: json.dumps(gradescope(graded[0], scoring), indent=2),
        "csv": lambda: table(graded, scoring),
        "gradebook": lambda: gradebook(graded, slugs or slugs_of(graded), scoring),
        "html": lambda: report_page(graded, colour, scoring),
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
        if number:
            verify = next_command("verify", "TRACE.json", "--puzzle", "SLUG")
            wrote.append(f"Wrote {counted(number, 'trace')} to {traces}, for '{verify}'.")
        elif not problem:
            wrote.append(f"Nothing to write to {traces}: there was no finished run whose trace can be judged again.")
        problems += [problem] if problem else []
    return wrote, problems


def _write_traces(graded: Sequence[Graded], traces: Path) -> tuple[int, str]:
    """Writes the runs that `verify` can judge again: the runs of one file into the folder itself, the runs of several
    into a folder for each. Returns how many, and why not all: after one failure the others would fail too."""
    written = 0
    for number, file in enumerate(graded):
        folder = traces if len(graded) == 1 else traces / f"{number:04}_{sanitized(Path(file.path).stem)[:60]}"
        for verdict in file.verdicts:
            track = track_of(verdict.puzzle)
            name = f"{verdict.puzzle}.json" if verdict.trace and track.judge.is_saved else ""
            if name and (problem := write(folder / name, lambda text=verdict.trace: text)):  # type: ignore[misc]
                return written, f"{problem}; the traces after it were not written"
            written += bool(name)
    return written, ""


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


def gradebook(graded: Sequence[Graded], slugs: Sequence[str], scoring: Scoring) -> str:
    """A CSV that Canvas, Moodle and spreadsheets import: a row for each student, each member of a group too, with the
    points of each puzzle in `slugs` and in all.

    The first three headings are the fewest that Canvas takes (lib/gradebook_importer.rb). Moodle gives a row without an
    ID to the student above it (grade/import/csv/classes/load_data.php), so no ID is empty. Both strip the space that is
    in front of what a spreadsheet would take for a formula.
    """
    rows: list[Sequence[object]] = [("Student", "ID", "Section", *slugs, "points")]
    for one in graded:
        by_slug = {verdict.puzzle: scoring.score(one, verdict) for verdict in one.verdicts}
        points = [by_slug.get(slug, 0.0) for slug in slugs]
        for who in one.student.people:
            number = next(iter(who.identifiers), who.name or Path(one.path).stem)
            words = (who.name or number, number, who.section)
            rows.append((*(harmless(" ".join(word.split()), " ") for word in words), *points, round(sum(points), 4)))
    return csv_text(rows)


def csv_text(rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def harmless(word: object, mark: str = "'") -> object:
    """A cell that no spreadsheet takes for a formula: such a one gets a mark in front."""
    return f"{mark}{word}" if str(word).startswith(("=", "+", "-", "@", "\t", "\r")) else word


# --- Gradescope ---


def _readable(verdict: Verdict) -> Verdict:
    """A verdict without the parts of sentences that advise an option: an autograder's students have none."""
    texts = (verdict.message, verdict.advice, *verdict.notes)
    message, advice, *notes = (re.sub(r"[,;:] [^,;:.]*\B--\w[^;.]*", "", text) for text in texts)
    return replace(verdict, message=message, advice=advice, notes=tuple(notes))


def gradescope(graded: Graded, scoring: Scoring) -> dict[str, Any]:
    """Gradescope's results of one student."""
    tests = [_test(graded, _readable(verdict), scoring) for verdict in graded.verdicts]
    return {
        "score": round(sum(test["score"] for test in tests), 4),
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "tests": tests,
        "leaderboard": _leaderboard(graded.verdicts),
    }


def _test(graded: Graded, verdict: Verdict, scoring: Scoring) -> dict[str, Any]:
    track = track_of(verdict.puzzle)
    return {
        "name": track.words.heading(track.puzzle(verdict.puzzle)),
        "score": scoring.score(graded, verdict),
        "max_score": scoring.most(verdict.puzzle),
        "status": "passed" if verdict.status == "passed" else "failed",
        "output": _html(verdict),
        "output_format": "html",
        "tags": [verdict.puzzle, f"stars: {verdict.stars}", *(["shown size only"] * verdict.shown_size_only)],
        "visibility": "visible",
    }


def _html(verdict: Verdict) -> str:
    """A verdict as HTML. Pictures are images, in which no script runs, since the page is Gradescope's."""
    (attempt,) = attempts([verdict]) or [{"verdict": verdict}]
    missing = track_of(verdict.puzzle).words.signature(verdict.puzzle)
    images = [base64.b64encode(picture.encode()).decode() for picture in attempt.get("pictures", ())]
    content = {"measures": (), "story": (), "missing": missing, **attempt, "images": images}
    return rendered("gradescope_test.html", **content).strip()


def _leaderboard(verdicts: Sequence[Verdict]) -> list[dict[str, Any]]:
    """The stars, and of each schedule that passed its steps, its peak and its traffic."""
    rows: list[dict[str, Any]] = [{"name": "stars", "value": sum(v.stars for v in verdicts)}]
    for v in verdicts:
        name = f"{v.puzzle} " if len(verdicts) > 1 else ""
        for figure, words in {"timesteps": "timesteps", "peak_memory": "peak", "traffic": "traffic"}.items():
            if figure in v.figures and v.status == "passed":
                rows.append({"name": f"{name}{words}", "value": v.figures[figure], "order": "asc"})
    return rows
