"""Takes over an entry as a record if no known record of its puzzle is as good: files a trace or a source, and a row."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from puzzles.catalog.found import INDEX, rows_of
from puzzles.catalog.puzzle import Puzzle
from puzzles.custom import RECORDS, home_of
from puzzles.custom.puzzle_file import shown
from puzzles.grading.grader import grade_file
from puzzles.grading.submission import Submission
from puzzles.grading.verdict import Verdict
from puzzles.sandbox.protection import protection
from puzzles.sandbox.tiers import IsolationTier, select_tier
from puzzles.tracks import track_of

from .entry import Entry, EntryError, file_name, judged, require_name


@dataclass(frozen=True)
class SourceEntry:
    """A class that was graded here and passed, with the file that defines it."""

    puzzle: Puzzle
    name: str
    source: str
    verdict: Verdict

    @property
    def file(self) -> str:
        """The name of its file: 'ann-0123456789ab.py'."""
        return file_name(self.name, hashlib.sha256(self.source.encode()).hexdigest()[:12], ".py")

    def text(self) -> str:
        """What is filed."""
        return self.source


def graded(path: Path, puzzle: Puzzle, name: str) -> Entry | SourceEntry:
    """What a Python file or a notebook is as an entry."""
    require_name(name)
    track = track_of(puzzle.slug)
    is_traced = bool(track.saved_as(puzzle))
    if path.suffix != ".py" and not is_traced:
        raise EntryError(f"a record of {puzzle.slug} is stored as Python; copy the {track.noun} into a .py file")
    submission = Submission.read(path)
    (verdict,) = grade_file(
        str(path), [puzzle], tier=_sandbox(), strict=True, keep=True, submission=submission
    ).verdicts
    if not verdict.attempted:
        raise EntryError(verdict.message or f"it has no {puzzle.slug}, or only the starter")
    if verdict.status != "passed":
        raise EntryError(f"it does not pass {puzzle.slug}: {verdict.message}")
    if is_traced:
        return judged(puzzle, name, verdict.trace.encode())
    return SourceEntry(puzzle, name, submission.text, verdict)


def _sandbox() -> IsolationTier:
    tier = select_tier()
    if not protection(tier).guards_files:
        raise EntryError(
            f"a record is graded in a sandbox, and there is none here ({tier.no_bubblewrap_because}); "
            "see 'puzzles doctor'"
        )
    return tier


def folder_for(puzzle: Puzzle) -> Path:
    """Where the records of a puzzle are kept: with the puzzle."""
    home, track = home_of(puzzle.slug), track_of(puzzle.slug)
    if track.found_folder is None:
        raise EntryError(track.why_no_records)
    return track.found_folder if home is None else home.path / RECORDS


def take_over(entry: Entry | SourceEntry) -> Path:
    """Files an entry as a record and returns the file of its trace or source."""
    verdict, slug, track = entry.verdict, entry.puzzle.slug, track_of(entry.puzzle.slug)
    _require_reference(entry.puzzle)
    if known := track.known_as_good(entry.puzzle, verdict.figures, verdict.family):
        raise EntryError(f"a known record is as good: {known}")
    folder = folder_for(entry.puzzle)
    file = folder / f"{slug}-{entry.file}"
    if file.exists():
        raise EntryError(f"{file} already exists; remove it, or add its row to {INDEX}")
    row = {"puzzle": slug, **track.record_row(verdict.figures, verdict.family), "name": entry.name, "file": file.name}
    rows = sorted([*_rows(folder), row], key=lambda one: (str(one["puzzle"]), str(one["file"])))
    folder.mkdir(parents=True, exist_ok=True)
    file.write_text(entry.text(), encoding="utf-8", newline="\n")
    (folder / INDEX).write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8", newline="\n")
    return file


def _require_reference(puzzle: Puzzle) -> None:
    home = home_of(puzzle.slug)
    own = home.puzzles[puzzle.slug] if home else None
    track = track_of(puzzle.slug)
    if own and own.reference and track.reference_games(puzzle) and not track.stated_rows(puzzle, own.reference):
        raise EntryError(
            f"a record must beat the reference, but {shown(own.file)} does not state its figures; "
            f"'puzzles check {shown(own.file.parent)} --write' adds them"
        )


def _rows(folder: Path) -> list[Mapping[str, object]]:
    rows, index = rows_of(folder), folder / INDEX
    if not rows and index.exists() and index.read_text(encoding="utf-8", errors="replace").strip() != "[]":
        raise EntryError(f"{index} cannot be read as a list of records; repair it first")
    return rows
