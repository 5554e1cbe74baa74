"""Reads a player's file as untrusted bytes: its code cells for the sandbox, its lines for messages."""

from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path
from tokenize import detect_encoding
from typing import Any

from puzzles.failure import Failure, of_source
from puzzles.sandbox.worker.source import looks_defined

from .notebook_cells import Cell, is_notebook, read_cells

MAX_FILE_SIZE = 16 << 20
"""Bytes of a file that is read at all."""

MAX_LINE_LENGTH = 200

DEFINITION_START = re.compile(r"^(?:async +def +|def +|class +|)(\w+)(?= *[(:=])", re.MULTILINE)


class Submission:
    """A Python file or notebook with definitions named after puzzles. `problem` is the error if it cannot be read."""

    def __init__(self, path: Path, source: bytes) -> None:
        self.path = path
        self.lines: list[str] = []
        self.cells: list[Cell] = []
        self.notebook = False
        self.problem: Exception | None = None
        try:
            if len(source) > MAX_FILE_SIZE:
                raise TooLargeError(f"this file has {len(source):,} bytes; at most {MAX_FILE_SIZE:,} are read")
            text = self._decode(source)
            self.notebook = is_notebook(path, text)
            self.cells = read_cells(path, text) if self.notebook else [Cell(1, text)]
            if path.suffix == ".ipynb":
                self.lines = [line for cell in self.cells for line in cell.text.split("\n")]
        except (SyntaxError, ValueError, RecursionError, TooLargeError) as why:
            self.problem = why

    @classmethod
    def read(cls, path: Path) -> Submission:
        """The submission in a file; one that cannot be read has that as its problem."""
        try:
            with path.open("rb") as file:
                return cls(path, file.read(MAX_FILE_SIZE + 1))
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
        """The problem in words for the player."""
        if isinstance(self.problem, TooLargeError):
            return Failure("syntax", str(self.problem))
        return None if self.problem is None else of_source(self.problem)

    def as_given(self) -> dict[str, Any]:
        """Returns it as plain data for the sandbox."""
        cells = [[cell.first_line, cell.text] for cell in self.cells]
        return {"name": self.path.name, "cells": cells, "notebook": self.notebook}

    def seems_to_define(self) -> set[str]:
        """Names that lines of the text look like definitions of; no more than a guess."""
        return {name for cell in self.cells for name in DEFINITION_START.findall(cell.text)}

    def looks_defined(self, name: str) -> bool:
        """True if a line looks like a definition of the name; for files that Python cannot parse."""
        return looks_defined(name, self.lines)

    def line(self, number: int) -> str:
        """The text of a line, without its indentation; empty if there is no such line."""
        return self.lines[number - 1].strip()[:MAX_LINE_LENGTH] if 0 < number <= len(self.lines) else ""

    def placed(self, message: str) -> str:
        """A message with the lines of a notebook counted by cell: 'line 57' becomes 'cell 5, line 3'."""
        if self.path.suffix != ".ipynb":
            return message
        return re.sub(r"\bline (\d{1,7})\b", lambda found: self._cell(int(found[1])) or found[0], message)

    def _cell(self, line: int) -> str:
        for cell in reversed(self.cells):
            if cell.first_line <= line:
                return f"cell {cell.number}, line {line - cell.first_line + 1}"
        return ""


class TooLargeError(Exception):
    """A file of more than `MAX_FILE_SIZE` bytes, which nobody has written by hand."""
