"""Files of results for other programs: JUnit XML, CSV, Gradescope, HTML, and the traces that were judged."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

import click

from puzzles.failure import plain
from puzzles.grading.verdict import Graded
from puzzles.sandbox.tiers import Tier
from puzzles.tracks import track_of
from puzzles.tracks.outcomes import counted

from .gradescope import gradescope

COLUMNS = tuple("submission puzzle status reason stars timesteps peak_memory message notes track figures".split())


def write_reports(
    graded: Sequence[Graded],
    wanted: Mapping[str, str | None],
    points: Mapping[str, float],
    partial: float,
    tier: Tier,
    traces: str | None,
) -> list[str]:
    """Writes each of the files that are wanted; formats without a path are left out. Returns what was written, a
    sentence for each."""

    def html() -> str:
        from .html import report_page  # here, because templates are slow to import

        return report_page(graded, tier)

    writers: dict[str, Callable[[], str]] = {
        "junit": lambda: junit(graded),
        "gradescope": lambda: json.dumps(gradescope(graded, points, partial), indent=2),
        "csv": lambda: table(graded),
        "html": html,
    }
    said = []
    for name, path in wanted.items():
        if path:
            _write(Path(path), writers[name]())
            said.append(f"Wrote {path}.")
    if traces:
        said.append(_traces_text(_write_traces(graded, Path(traces)), traces))
    return said


def _traces_text(number: int, folder: str) -> str:
    if number:
        return f"Wrote {counted(number, 'trace')} to {folder}, for 'puzzles verify TRACE.json --puzzle SLUG'."
    return f"Nothing to write to {folder}: there was no finished run whose trace can be judged again."


def _write_traces(graded: Sequence[Graded], traces: Path) -> int:
    """Writes the runs that `verify` can judge again: of one file into the folder itself, of several into one for
    each. Returns how many."""
    written = 0
    for number, file in enumerate(graded):
        folder = traces if len(graded) == 1 else traces / f"{number:04}_{Path(file.path).stem}"
        for verdict in file.verdicts:
            track = track_of(verdict.puzzle)
            name = track.saved_as(track.puzzle(verdict.puzzle)) if verdict.trace else ""
            if name:
                _write(folder / name, verdict.trace)
                written += 1
    return written


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as why:
        raise click.UsageError(f"cannot write {path}: {why.strerror}") from None


def junit(graded: Sequence[Graded]) -> str:
    """One suite for each file, one case for each puzzle; over target is a failure, not attempted is skipped."""
    root = ElementTree.Element("testsuites")
    for file in graded:
        failed = sum(v.status in ("failed", "over_target") for v in file.verdicts)
        skipped = len(file.verdicts) - len(file.attempted)
        counts = {"tests": str(len(file.verdicts)), "failures": str(failed), "errors": "0", "skipped": str(skipped)}
        suite = ElementTree.SubElement(root, "testsuite", {"name": plain(file.path), **counts})
        for v in file.verdicts:
            case = ElementTree.SubElement(suite, "testcase", {"classname": plain(file.path), "name": v.puzzle})
            if v.status == "not_attempted":
                ElementTree.SubElement(case, "skipped", {"message": v.message or "not attempted"})
            elif v.status != "passed":
                attributes = {"type": v.reason or v.status, "message": v.message}
                ElementTree.SubElement(case, "failure", attributes).text = v.source
            if v.notes or v.printed:
                ElementTree.SubElement(case, "system-out").text = "\n".join((*v.notes, *v.printed))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _harmless(word: object) -> object:
    return f"'{word}" if str(word).startswith(("=", "+", "-", "@")) else word


def table(graded: Sequence[Graded]) -> str:
    """CSV. What a spreadsheet would take for a formula gets an apostrophe in front."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for file in graded:
        for v in file.verdicts:
            words: tuple[object, ...] = (
                *(plain(file.path), v.puzzle, v.status, v.reason, v.stars, v.timesteps, v.peak_memory),
                *(v.message, "; ".join(v.notes), v.track),
                " ".join(f"{name}={value}" for name, value in v.figures.items()),
            )
            writer.writerow(map(_harmless, words))
    return text.getvalue()
