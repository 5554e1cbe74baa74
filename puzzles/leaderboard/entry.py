"""An entry of a leaderboard: a trace with the puzzle that it solves and the name of whoever found it, as JSON."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import subprocess
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from puzzles.catalog.puzzle import Puzzle
from puzzles.failure import sanitized
from puzzles.grading.judge import judge_saved
from puzzles.grading.submission import MAX_FILE_SIZE, SourceFile
from puzzles.grading.verdict import Verdict
from puzzles.tracks import UnknownPuzzleError, find, track_of

FORMAT = "training-puzzles entry"
VERSION = 1
MAX_NAME = 60
FIELDS = ("format", "version", "puzzle", "name", "trace")


class EntryError(Exception):
    """A file that is no entry, or an entry that does not solve its puzzle; the text says why."""


@dataclass(frozen=True)
class Entry:
    """A run that was judged here and passed."""

    puzzle: Puzzle
    name: str
    trace: str
    """In one form, so that equal runs are equal texts."""
    verdict: Verdict
    found: str = ""
    """The day on which it was found, as 2026-11-20; empty if that is not known."""

    @property
    def point(self) -> tuple[float, ...]:
        """The figures that entries are compared by; less is better in each."""
        return tuple(self.verdict.figures[name] for name in self.axes)

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of these figures, which are the same in all entries of a puzzle."""
        return tuple(name for name in AXES if name in self.verdict.figures)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.trace.encode()).hexdigest()[:12]

    @property
    def file(self) -> str:
        """The usual name of its file: 'ann-0123456789ab.json'."""
        return file_name(self.name, self.digest, ".json")

    def dominates(self, other: Entry) -> bool:
        """True if it is at least as good in every figure, and better in one."""
        return self.point != other.point and all(a <= b for a, b in zip(self.point, other.point))

    def text(self) -> str:
        fields = (FORMAT, VERSION, self.puzzle.slug, self.name, json.loads(self.trace))
        return json.dumps(dict(zip(FIELDS, fields)), ensure_ascii=False, separators=(",", ":")) + "\n"


AXES = {
    "timesteps": "timesteps",
    "peak_memory": "peak memory",
    "traffic": "traffic",
    "host_memory": "on the host",
    "seconds": "seconds a step",
    "gib": "GiB",
}
"""The figures that entries are compared by, where a puzzle has them, and what their columns are called."""


def judged(puzzle: Puzzle, name: str, trace: bytes) -> Entry:
    """The entry of a saved run."""
    require_name(name)
    verdict = judge_saved(puzzle, trace, keep=True)
    if verdict.status != "passed":
        words = verdict.message[:1].lower() + verdict.message[1:]
        raise EntryError(f"it does not pass {puzzle.slug}: {words}")
    return Entry(puzzle, name, _one_form(verdict.trace), verdict)


def require_name(name: str) -> None:
    if not name.strip() or name != sanitized(name) or len(name) > MAX_NAME:
        raise EntryError(f"a name has 1 to {MAX_NAME} characters on one line; got {name[:MAX_NAME]!r}")


def file_name(name: str, digest: str, suffix: str) -> str:
    """'ann-0123456789ab.json'."""
    return f"{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-') or 'entry'}-{digest}{suffix}"


def read_entry(path: Path) -> Entry:
    """The entry in a file; or in a plain trace that 'puzzles grade --traces' wrote: its file has the puzzle's name, and
    its folder the player's.
    """
    try:
        data = SourceFile(str(path)).read()
    except OSError as why:
        raise EntryError(f"it cannot be read: {why.strerror or why}") from None
    if len(data) > MAX_FILE_SIZE:
        raise EntryError(f"it has more than {MAX_FILE_SIZE:,} bytes")
    try:
        given: Any = json.loads(data)
    except (ValueError, RecursionError) as why:
        raise EntryError(f"it is not JSON: {why}") from None
    if not isinstance(given, dict) or "format" not in given or "puzzle" not in given:
        return judged(saved_puzzle(path.stem), re.sub(r"^\d{4}_", "", path.absolute().parent.name), data)
    if (given.get("format"), given.get("version")) != (FORMAT, VERSION) or set(given) != set(FIELDS):
        raise EntryError(f"an entry has the fields {', '.join(FIELDS)}, the format '{FORMAT}' and version {VERSION}")
    if not isinstance(given["puzzle"], str) or not isinstance(given["name"], str):
        raise EntryError("the puzzle and the name of an entry must be strings")
    return judged(saved_puzzle(given["puzzle"]), given["name"], json.dumps(given["trace"]).encode())


def saved_puzzle(slug: str, advice: str = "") -> Puzzle:
    """A puzzle whose runs can be judged again; `advice` follows the words on one that does not exist."""
    try:
        puzzle = find(slug)
    except UnknownPuzzleError as why:
        raise EntryError(f"{why}{advice}") from None
    if not track_of(puzzle.slug).saved_as(puzzle):
        raise EntryError(f"there are no traces of {puzzle.slug}; only runs of schedules can be judged again")
    return puzzle


def _one_form(trace: str) -> str:
    return json.dumps(json.loads(trace), sort_keys=True, separators=(",", ":"))


def dates_of(folder: Path, source: str) -> dict[str, str]:
    """The day of each file in a folder, as 2026-11-20, by its path there. `source` is 'git', or a CSV file with the
    columns `file` and `date`.
    """
    return _from_git(folder) if source == "git" else _from_table(Path(source))


def _from_git(folder: Path) -> dict[str, str]:
    """Days are in UTC, so that everybody makes the same board."""
    words = ["log", "--diff-filter=A", "--no-renames", "--format=%x00%ct", "--name-only", "--relative", "-z", "--", "."]
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
        shallow = ["git", "-C", str(folder), "rev-parse", "--is-shallow-repository"]
        is_shallow = subprocess.run(shallow, capture_output=True, text=True, check=True).stdout.strip() == "true"
    except (OSError, subprocess.CalledProcessError) as why:
        said = (getattr(why, "stderr", "") or str(why)).strip().splitlines()[:1]
        raise EntryError(f"git has no history of {folder}: {' '.join(said)}") from None
    if is_shallow:
        raise EntryError(f"this clone of {folder} has only part of the history; 'git fetch --unshallow' gets the rest")
    found: dict[str, str] = {}
    day = ""
    for word in done.stdout.split("\0"):
        name = word.strip("\n")
        if name.isdecimal() and len(name) > 8:
            day = datetime.fromtimestamp(int(name), UTC).date().isoformat()
        elif name and day:
            found[name] = day  # the log begins with the latest, so the first of several is what stays
    return found


def _from_table(path: Path) -> dict[str, str]:
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline="")))
    except (OSError, UnicodeDecodeError, csv.Error) as why:
        raise EntryError(f"{path}: {getattr(why, 'strerror', None) or why}") from None
    found = {}
    for number, row in enumerate(rows, 2):
        name, text = row.get("file"), row.get("date")
        try:
            if not name:
                raise ValueError
            found[name] = date.fromisoformat((text or "")[:10]).isoformat()
        except ValueError:
            raise EntryError(f"{path}, line {number}: it needs a 'file' and a 'date' such as 2026-11-20") from None
    return found
