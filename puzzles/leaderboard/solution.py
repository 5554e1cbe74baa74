"""A solution to take over as a record: graded in the sandbox; a schedule by its trace, a class by its source."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from puzzles.catalog.puzzle import Puzzle
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
    """What a Python file or a notebook is as an entry.

    Raises:
        EntryError: the name cannot be shown, nothing sandboxes the run, it does not pass at every size, or it is a
            class in a notebook.
    """
    require_name(name)
    track = track_of(puzzle.slug)
    is_traced = bool(track.saved_as(puzzle))
    if path.suffix != ".py" and not is_traced:
        raise EntryError(f"a record of {puzzle.slug} is filed as Python; copy the {track.noun} into a .py file")
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
