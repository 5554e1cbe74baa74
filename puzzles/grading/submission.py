"""A player's file, as bytes that nobody here trusts: its text for the keeper, its lines for the messages."""

from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path
from tokenize import detect_encoding
from typing import Any

from puzzles.failure import Failure, of_source
from puzzles.sandbox.worker.source import looks_defined

from .notebook_cells import Part, is_notebook, read_cells

LARGEST = 16 << 20
"""Bytes of a file that is read at all."""

LONGEST_LINE = 200

DEFINED = re.compile(r"^(?:async +def +|def +|class +|)(\w+)(?= *[(:=])", re.MULTILINE)


class Submission:
    """A Python file or notebook with functions named after puzzles. `problem` tells why it cannot be read, if so."""

    def __init__(self, path: Path, source: bytes) -> None:
        self.path = path
        self.lines: list[str] = []
        self.parts: list[Part] = []
        self.notebook = False
        self.problem: Exception | None = None
        try:
            if len(source) > LARGEST:
                raise TooLarge(f"this file has {len(source):,} bytes; at most {LARGEST:,} are read")
            text = self._decode(source)
            self.notebook = is_notebook(path, text)
            self.parts = read_cells(path, text) if self.notebook else [Part(1, text)]
            if path.suffix == ".ipynb":
                self.lines = [line for part in self.parts for line in part.text.split("\n")]
        except (SyntaxError, ValueError, RecursionError, TooLarge) as why:
            self.problem = why

    @classmethod
    def read(cls, path: Path) -> Submission:
        """The submission in a file; one that cannot be read has that as its problem."""
        try:
            with path.open("rb") as file:
                return cls(path, file.read(LARGEST + 1))
        except OSError as why:
            unreadable = cls(path, b"")
            unreadable.problem = why
            return unreadable

    def _decode(self, source: bytes) -> str:
        """The text, in the encoding that its first lines declare; UTF-8 otherwise, as in any Python file."""
        text = source.decode("utf-8-sig", errors="replace")
        try:
            encoding, _ = detect_encoding(BytesIO(source).readline)
            text = source.decode(encoding)
        finally:
            self.lines = re.split(r"\r\n|\r|\n", text)
        return text

    @property
    def failure(self) -> Failure | None:
        """The problem as the player is told it."""
        if isinstance(self.problem, TooLarge):
            return Failure("syntax", str(self.problem))
        return None if self.problem is None else of_source(self.problem)

    def as_given(self) -> dict[str, Any]:
        """What the keeper gets of it."""
        parts = [list(part[:2]) for part in self.parts]
        return {"name": self.path.name, "parts": parts, "notebook": self.notebook}

    def seems_to_define(self) -> set[str]:
        """Names that lines of the text look like definitions of; no more than a guess."""
        return {name for part in self.parts for name in DEFINED.findall(part.text)}

    def looks_defined(self, name: str) -> bool:
        """Whether a line looks like a definition; for files that Python cannot read."""
        return looks_defined(name, self.lines)

    def line(self, number: int) -> str:
        """The text of a line, without its indentation; empty if there is no such line."""
        return self.lines[number - 1].strip()[:LONGEST_LINE] if 0 < number <= len(self.lines) else ""

    def placed(self, message: str) -> str:
        """A message with the lines of a notebook told by their cells: 'line 57' is 'cell 5, line 3'."""
        if self.path.suffix != ".ipynb":
            return message
        return re.sub(r"\bline (\d{1,7})\b", lambda found: self._cell(int(found[1])) or found[0], message)

    def _cell(self, line: int) -> str:
        for part in reversed(self.parts):
            if part.first <= line:
                return f"cell {part.cell}, line {line - part.first + 1}"
        return ""


class TooLarge(Exception):
    """A file that nobody has written by hand."""
