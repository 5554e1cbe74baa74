"""Reads a player's file as untrusted bytes: its text for the sandbox, its lines for messages. It is parsed there."""

from __future__ import annotations

import ast
import codecs
import re
from contextlib import suppress
from functools import cached_property
from io import BytesIO
from pathlib import Path
from tokenize import detect_encoding
from typing import Any

from puzzles.failure import UNPARSABLE, Failure, UnreadableError, of_source
from puzzles.sandbox.worker.notebook_cells import NotebookCell, read_cells, require_few, without_magics
from puzzles.tracks import ALL

from .source_file import MAX_FILE_SIZE, SourceFile

MAX_LINE_LENGTH = 200

ENCODINGS = ("utf-8", "utf-8-sig", "ascii", "iso8859-1")
"""By Python's names for them. Others are not for text (zlib), or slow to decode (punycode)."""

DECLARED = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
"""The declaration of an encoding, as in PEP 263."""

DEFINITION = r"(?:(?:async +def +|def +|class +)(\w+)(?= *[(:])|(\w+)(?= *[=:]))"
DEFINITION_START = re.compile(rf"^{DEFINITION}", re.MULTILINE)
DEFINITION_IN_JSON = re.compile(rf'(?:\\n|"){DEFINITION}')


class Submission:
    """A Python file or notebook with definitions named after puzzles. `problem` is the error if it cannot be read."""

    def __init__(self, path: Path, source: bytes) -> None:
        self.path = path
        self.text = ""
        self.cells: list[NotebookCell] = []
        """Those of a notebook, once the sandbox has found them."""
        self.problem: Exception | None = None
        try:
            if len(source) > MAX_FILE_SIZE:
                raise UnreadableError(f"this file has {len(source):,} bytes; at most {MAX_FILE_SIZE:,} are read")
            self._decode(source)
        except (SyntaxError, ValueError, UnreadableError) as why:
            self.problem = why

    @classmethod
    def read(cls, path: Path) -> Submission:
        """The submission in a file; one that cannot be read has that as its problem."""
        return cls.of(SourceFile(str(path)))

    @classmethod
    def of(cls, file: SourceFile) -> Submission:
        """The submission in a file that was found; as above."""
        try:
            return cls(Path(file.path), file.read())
        except OSError as why:
            return cls.unreadable(file.path, why)

    @classmethod
    def unreadable(cls, path: str, why: OSError) -> Submission:
        """The submission that a file would have held."""
        submission = cls(Path(path), b"")
        submission.problem = why
        return submission

    def _decode(self, source: bytes) -> None:
        """Sets the text, in the encoding that its first lines declare; UTF-8 otherwise, as in any Python file."""
        text = source.decode("utf-8-sig", errors="replace")
        if not self._is_json:
            require_few(text)
        self.text = text
        _require_text_encoding(source)
        encoding, _ = detect_encoding(BytesIO(source).readline)
        self.text = source.decode(encoding)

    @property
    def failure(self) -> Failure | None:
        """The problem in words for the player."""
        return None if self.problem is None else of_source(self.problem)

    def as_given(self) -> dict[str, Any]:
        """Returns it as plain data for the sandbox."""
        return {"name": self.path.name, "text": self.text}

    @cached_property
    def names(self) -> set[str]:
        """The names that the text seems to define; a guess."""
        start = DEFINITION_IN_JSON if self._is_json else DEFINITION_START
        return {name for pair in start.findall(self.text) for name in pair if name}

    def looks_defined(self, name: str) -> bool:
        """True if a line looks like a definition of the name; for files that Python cannot parse."""
        return name in self.names

    def line(self, number: int) -> str:
        """The text of a line, without its indentation; empty if there is no such line."""
        return self._lines[number - 1].strip()[:MAX_LINE_LENGTH] if 0 < number <= len(self._lines) else ""

    def placed(self, message: str) -> str:
        """A message with the lines of a notebook counted by cell: 'line 57' becomes 'cell 5, line 3'."""
        if not self._is_json:
            return message
        return re.sub(r"\b([Ll])ine (\d{1,7})\b", self._placed, message)

    @property
    def _is_json(self) -> bool:
        return self.path.suffix == ".ipynb"

    @cached_property
    def _lines(self) -> list[str]:
        if self._is_json:
            return [line for cell in self.cells for line in cell.text.split("\n")]
        return re.split(r"\r\n|\r|\n", self.text)

    def _placed(self, found: re.Match[str]) -> str:
        cell = self._cell(int(found[2])) or found[0]
        return cell.capitalize() if found[1] == "L" else cell

    def _cell(self, line: int) -> str:
        for cell in reversed(self.cells):
            if cell.first_line <= line:
                return f"cell {cell.number}, line {line - cell.first_line + 1}"
        return ""


def _require_text_encoding(source: bytes) -> None:
    """Refuses other encodings before `detect_encoding`, which decodes with them since Python 3.14."""
    for line in source.split(b"\n", 2)[:2]:
        declared = DECLARED.match(line)
        if declared:
            encoding = declared[1].decode()
            with suppress(LookupError):  # `detect_encoding` refuses names that are unknown
                if codecs.lookup(encoding).name not in ENCODINGS:
                    raise UnreadableError(
                        f"this file declares the encoding {encoding}; save it as UTF-8, or as Latin-1"
                    )


def source_of(submission: Submission) -> str:
    """The Python of a file, or of all cells of a notebook; empty if it cannot be read."""
    try:
        cells = read_cells(submission.path.name, submission.text)
    except (ValueError, UnreadableError):
        return ""
    return "\n".join(without_magics(cell.text) for cell in cells)


def fingerprints(submission: Submission) -> dict[str, str]:
    """The source of each puzzle's function or class, and under '' everything else. Comments and lines do not count."""
    found: dict[str, str] = {"": ""}
    try:
        cells = read_cells(submission.path.name, submission.text)
    except (ValueError, UnreadableError):
        return {"": submission.text}
    for part in cells:
        try:
            tree = ast.parse(without_magics(part.text))
        except UNPARSABLE:
            found[""] += part.text
            continue
        for node in tree.body:
            name = getattr(node, "name", "")
            found[name if name in ALL else ""] = found.get(name if name in ALL else "", "") + ast.dump(node)
    return found
