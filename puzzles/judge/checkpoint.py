"""A grading job, which is the same for each of many files; and the checkpoint from which it resumes."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import IO, NamedTuple

import click

from lib.ledger.algebra import counted
from puzzles.custom import add_folder, folders
from puzzles.failure import sanitized
from puzzles.judge.progress import data_folder
from puzzles.sandbox.client import Client
from puzzles.sandbox.limits import Limits
from puzzles.tracks import track_of

from .grader import grade_file
from .session import new_client
from .submission import Content, Submission
from .verdict import Graded


class GradingJob(NamedTuple):
    """The puzzles to grade in each file (without `slugs`, the puzzles that it attempts), and the conditions."""

    slugs: tuple[str, ...]
    limits: Limits
    strict: bool = False
    keep: bool = False
    own: tuple[tuple[str, str], ...] = ()
    """Folders of own puzzles, each with the digest of its content."""

    def grade(self, path: str, source: Content, client: Client | None = None) -> Graded:
        """Grades a file. `source` is its content, or the error from reading it."""
        there = {str(folder.path) for folder in folders()}
        for folder, _ in self.own:  # a process that was not forked lacks them
            if folder not in there:
                add_folder(folder)
        submission = Submission(Path(path), source)
        puzzles = [track_of(slug).puzzle(slug) for slug in self.slugs] or None
        return grade_file(path, puzzles, self.limits, self.strict, self.keep, submission, client)

    def grade_with_kept_client(self, path: str, source: Content) -> Graded:
        """Grades a file with this thread's client, whose server stays for the next file."""
        if not vars(_kept):
            _kept.client = new_client()
        return self.grade(path, source, _kept.client)


def close_kept_client() -> None:
    """Ends the server that this thread keeps, if any."""
    for client in vars(_kept).values():
        client.close()
    vars(_kept).clear()


_kept = threading.local()
"""The client of each thread. Its server ends with the client or the process."""


class Checkpoint(AbstractContextManager["Checkpoint"]):
    """A file with a line for each graded submission, valid only for the same content under the same conditions.

    It stays until `finish`, after the reports, so that an interrupt costs nothing. Grading never depends on it:
    problems with the file become warnings.
    """

    def __init__(self, path: Path, conditions: str, resume: bool, number: int) -> None:
        """`number` of files to grade."""
        self.path = path
        self.conditions = conditions
        self.resumes = resume
        self.number = number
        self.warnings: list[str] = []
        self._done: set[str] = set()
        self._known: dict[str, tuple[str, Graded]] = {}
        self._began: dict[str, str] = {}
        if resume:
            self._read()
        self._file: IO[bytes] | None = self._open("ab" if resume else "wb")

    @classmethod
    def of(cls, paths: Sequence[str], job: GradingJob, resume: bool) -> Checkpoint:
        """Opens the checkpoint of a run over these files; its name is a digest of their paths."""
        names = b"\n".join(os.fsencode(os.path.realpath(path)) for path in paths)
        return cls(data_folder() / "runs" / f"{_digest(names)[:24]}.jsonl", repr(job), resume, len(paths))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        is_written = self._file is not None
        self._close()
        for warning in self.warnings:
            click.echo(f"Warning: {warning}", err=True)
        if kind is KeyboardInterrupt:
            words = "; --resume continues from there" if is_written else ""
            raise KeyboardInterrupt(f"Interrupted after {len(self._done)} of {self.number} files{words}.") from None

    def begin(self, path: str, content: Content) -> None:
        """Remembers the content that a file is graded with."""
        self._began[path] = self._key(content)

    def known(self, path: str, content: Content) -> Graded | None:
        """The verdicts on this file, if it was graded before with this content."""
        key, graded = self._known.get(path, ("", None))
        if key != self._key(content):
            return None
        self._done.add(path)
        return graded

    def add(self, graded: Graded, content: Content) -> None:
        """Writes the verdicts on a file that now has this content. If the file changed while it was graded, nothing is
        written, and the next run grades it again."""
        key = self._key(content)
        if self._began.get(graded.path, key) != key:
            name = sanitized(graded.path)
            self.warnings.append(f"{name} changed while it was graded; the verdict is on the earlier content")
        elif self._file is not None:
            try:
                self._file.write(b"\n" + json.dumps({"key": key, "graded": graded.row()}).encode())
                self._file.flush()
            except OSError as why:
                self._give_up(why)
        self._done.add(graded.path)

    def finish(self) -> None:
        """Removes the file if it has every verdict, so that there is nothing left to resume."""
        self._close()
        if len(self._done) == self.number:
            with suppress(OSError):
                self.path.unlink()

    def _open(self, mode: str) -> IO[bytes] | None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return self.path.open(mode)
        except OSError as why:
            self._give_up(why)
            return None

    def _give_up(self, why: OSError) -> None:
        self._close()
        self.warnings.append(f"this run cannot be resumed: {sanitized(str(self.path))}: {why.strerror or why}")

    def _close(self) -> None:
        file, self._file = getattr(self, "_file", None), None
        if file is not None:
            with suppress(OSError):  # a failed write was reported when it happened
                file.close()

    def _key(self, content: Content) -> str:
        data = content if isinstance(content, bytes) else repr(content).encode(errors="backslashreplace")
        return _digest(self.conditions.encode() + bytes([0, isinstance(content, bytes)]) + data)

    def _read(self) -> None:
        """The last line may be incomplete, if the run was interrupted there."""
        try:
            lines = [line for line in self.path.read_bytes().split(b"\n") if line]
        except OSError:
            return
        unreadable = 0
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                graded = Graded.of_row(row["graded"])
                self._known[graded.path] = (str(row["key"]), graded)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                unreadable += number < len(lines)
        if unreadable:
            which = f"{unreadable} of {counted(len(lines), 'line')} in {sanitized(str(self.path))}"
            self.warnings.append(f"{which} cannot be read; those files are graded again")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
