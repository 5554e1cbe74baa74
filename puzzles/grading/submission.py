"""Reads a player's file as untrusted bytes: its text for the sandbox, its lines for messages. It is parsed there.

Only a regular file is opened, reached without links from the folder that was given: a link could lead to a classmate's
work or a teacher's file, which would then be graded or quoted; a pipe or a device could hang whoever opens it.
"""

from __future__ import annotations

import ast
import codecs
import os
import re
import stat
from contextlib import ExitStack, suppress
from functools import cached_property
from io import BytesIO
from pathlib import Path
from tokenize import detect_encoding
from typing import Any, NamedTuple

from puzzles.failure import UNPARSABLE, Failure, UnreadableError, of_source
from puzzles.sandbox.worker.notebook_cells import NotebookCell, read_cells, require_few, without_magics
from puzzles.tracks import ALL

MAX_FILE_SIZE = 16 << 20
"""Most bytes of a file; of a larger one, one more is read."""

OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
FOLDER = getattr(os, "O_DIRECTORY", 0)
HANDLES = os.open in os.supports_dir_fd and os.stat in os.supports_dir_fd
"""False on Windows, where paths are opened whole."""

LINK = "it is a link, or below one; grade the file that it leads to by its own name"
SPECIAL = "it is a pipe, a device or a socket, which is never opened; grade a regular file"


class SourceFile(NamedTuple):
    """A file to grade. `folder` is the one it was found in, below which links are refused; None for a file that was
    named by itself. One that was `refused` already is never opened."""

    path: str
    folder: str | None = None
    refused: str = ""

    @property
    def size(self) -> int:
        """Its bytes, as far as its name tells; it is not opened."""
        return int(self._seen("st_size"))

    @property
    def modified(self) -> float:
        """When it was changed, in seconds since 1970; as above."""
        return float(self._seen("st_mtime"))

    def _seen(self, name: str) -> Any:
        try:
            return getattr(os.lstat(self.path), name)
        except (OSError, ValueError):
            return 0

    def read(self) -> bytes:
        """Its content, up to `MAX_FILE_SIZE` bytes and one."""
        if self.refused:
            raise OSError(self.refused)
        with ExitStack() as stack:
            handle = self._open(stack)
            with os.fdopen(os.dup(handle), "rb") as file:
                return file.read(MAX_FILE_SIZE + 1)

    def _open(self, stack: ExitStack) -> int:
        """A handle of the file, reached by handles of the folders on the way."""
        if self.folder is None:
            _require_regular(os.stat(self.path))
            return _checked(_opened(stack, self.path, OPEN_FLAGS | NO_WAIT))
        names = Path(os.path.relpath(self.path, self.folder)).parts
        at: int | None = _opened(stack, self.folder, OPEN_FLAGS | FOLDER) if HANDLES else None
        for i, name in enumerate(names):
            where = name if HANDLES else os.path.join(self.folder, *names[: i + 1])
            last, found = i == len(names) - 1, os.stat(where, dir_fd=at, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                raise OSError(LINK)
            if last:
                _require_regular(found)
            if last or HANDLES:
                at = _opened(stack, where, OPEN_FLAGS | NO_LINK | (NO_WAIT if last else FOLDER), at)
        assert at is not None
        return _checked(at)


def _opened(stack: ExitStack, path: str, flags: int, folder: int | None = None) -> int:
    handle = os.open(path, flags, dir_fd=folder)
    stack.callback(os.close, handle)
    return handle


def _checked(handle: int) -> int:
    """The handle, if it is still the file that was checked: another may have replaced it."""
    _require_regular(os.fstat(handle))
    return handle


def _require_regular(found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise OSError("it is a folder")
    if not stat.S_ISREG(found.st_mode):
        raise OSError(SPECIAL)


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
        return re.sub(r"\bline (\d{1,7})\b", lambda found: self._cell(int(found[1])) or found[0], message)

    @property
    def _is_json(self) -> bool:
        return self.path.suffix == ".ipynb"

    @cached_property
    def _lines(self) -> list[str]:
        if self._is_json:
            return [line for cell in self.cells for line in cell.text.split("\n")]
        return re.split(r"\r\n|\r|\n", self.text)

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
