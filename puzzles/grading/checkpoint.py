"""Checkpoint file of a run over many files: the verdicts so far, so that an interrupted run can be resumed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from .job import Job
from .progress import data_folder
from .verdict import Graded


class Checkpoint:
    """One line for each graded file. A line is valid only for the same content under the same conditions."""

    def __init__(self, path: Path, conditions: str, resume: bool) -> None:
        self.path = path
        self.conditions = conditions
        self._known: dict[str, tuple[str, Graded]] = {}
        if resume:
            self._read()
        self._file = self._open("a" if resume else "w")

    def _open(self, mode: str) -> IO[str]:
        """Opens the file for writing; if that fails, the run goes on and cannot be resumed."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return self.path.open(mode, encoding="utf-8")
        except OSError:
            return open(os.devnull, "w", encoding="utf-8")

    @classmethod
    def of(cls, paths: Iterable[str], job: Job, resume: bool) -> Checkpoint:
        """Opens the checkpoint of a run over these files; its name is a digest of theirs."""
        names = "\n".join(str(Path(path).resolve()) for path in paths)
        return cls(data_folder() / "runs" / f"{_digest(names.encode())[:24]}.jsonl", repr(job), resume)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._file.close()

    def known(self, path: str, content: bytes | None) -> Graded | None:
        """Returns the verdicts on this file, if it was graded before with this content."""
        key, graded = self._known.get(path, ("", None))
        return graded if key == self._key(content) else None

    def add(self, graded: Graded, content: bytes | None) -> None:
        """Writes the verdicts on a file that had this content."""
        self._file.write(json.dumps({"key": self._key(content), "graded": graded.row()}) + "\n")
        self._file.flush()

    def finish(self) -> None:
        """Removes the file: all is graded, and there is nothing to resume."""
        self._file.close()
        with suppress(OSError):
            self.path.unlink()

    def _key(self, content: bytes | None) -> str:
        return _digest(self.conditions.encode() + b"\0" + (content or b""))

    def _read(self) -> None:
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except OSError:
            return
        for line in lines:
            try:
                row = json.loads(line)
                graded = Graded.of_row(row["graded"])
                self._known[graded.path] = (row["key"], graded)
            except (ValueError, KeyError, TypeError):
                continue  # the line on which the run was interrupted


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
