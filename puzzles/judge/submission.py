"""Finds the files to grade, and reads each as untrusted bytes: its text for the sandbox, its lines for messages.

Only a regular file is opened, reached without links from the given folder. A link could lead to a classmate's work or a
teacher's file, which would then be graded or quoted; opening a pipe or a device could hang. Entries that cannot be
graded, such as links, are listed with the reason, so that nobody is missing from a report. Nothing is parsed or run
here but the cells of a notebook: a sandboxed process reads the code.

Rejected: checking a path and opening it afterwards, since it may be exchanged in between; where the system can, folders
are opened one below the other, and the opened file is what is checked.
"""

from __future__ import annotations

import ast
import codecs
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import cached_property
from io import BytesIO
from pathlib import Path
from tokenize import detect_encoding
from typing import Any, NamedTuple

from lib.errors import Sentences
from puzzles.failure import UNPARSABLE, Failure, UnreadableError, of_source
from puzzles.sandbox.worker.reading import NotebookCell, read_cells, require_few, without_magics
from puzzles.tracks import ALL

SAYS = Sentences(
    {
        "link": "it is a link, or below a link; grade the file itself by its own path",
        "folder": "it is a folder",
        "no regular file": "it is a pipe, a device or a socket, which is never opened; grade a regular file",
        "too deep": "it is more than {depth} folders deep",
        "folder not listed": "this folder cannot be listed: {why}",
        "file too large": "this file has {nbytes:,} bytes; at most {most:,} are read",
        "UTF-16": "this file is in UTF-16, which Python does not read; save it in UTF-8",
        "other encoding": "this file declares the encoding {encoding}; save it as UTF-8 or Latin-1",
    }
)
"""Why a file is not graded."""


MAX_FILE_SIZE = 16 << 20
"""Most bytes of a file; one more is read to recognize a larger file."""

OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
NO_WAIT = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
FOLDER = getattr(os, "O_DIRECTORY", 0)
HANDLES = os.open in os.supports_dir_fd and os.stat in os.supports_dir_fd
"""False on Windows, which cannot open a path folder by folder."""


Content = bytes | OSError
"""A file's content, or why it could not be read."""


class SourceFile(NamedTuple):
    """A file to grade. `folder` is the folder it was found in, below which links are refused; None for a file that was
    named itself. With `refused`, a reason, it is never opened."""

    path: str
    folder: str | None = None
    refused: str = ""

    @property
    def size(self) -> int:
        """In bytes; 0 if unknown. The file is not opened."""
        return int(self._seen("st_size"))

    @property
    def modified(self) -> float:
        """In seconds since 1970; 0 if unknown."""
        return float(self._seen("st_mtime"))

    def _seen(self, name: str) -> Any:
        try:
            return getattr(os.lstat(self.path), name)
        except (OSError, ValueError):
            return 0

    def content(self) -> Content:
        """Its content, as `read` returns it, or the error from reading it."""
        try:
            return self.read()
        except OSError as why:
            return why

    def read(self) -> bytes:
        """Its content, up to `MAX_FILE_SIZE` bytes and one."""
        if self.refused:
            raise OSError(self.refused)
        with ExitStack() as stack:
            handle = self._open(stack)
            with os.fdopen(os.dup(handle), "rb") as file:
                return file.read(MAX_FILE_SIZE + 1)

    def _open(self, stack: ExitStack) -> int:
        """A handle of the file, reached through handles of the folders above it."""
        if self.folder is None:
            _require_regular(os.stat(self.path))
            return _checked(_opened(stack, self.path, OPEN_FLAGS | NO_WAIT))
        names = Path(os.path.relpath(self.path, self.folder)).parts
        at: int | None = _opened(stack, self.folder, OPEN_FLAGS | FOLDER) if HANDLES else None
        for i, name in enumerate(names):
            where = name if HANDLES else os.path.join(self.folder, *names[: i + 1])
            last, found = i == len(names) - 1, os.stat(where, dir_fd=at, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                raise OSError(SAYS("link"))
            if last:
                _require_regular(found)
            if last or HANDLES:
                at = _opened(
                    stack, where, OPEN_FLAGS | getattr(os, "O_NOFOLLOW", 0) | (NO_WAIT if last else FOLDER), at
                )
        assert at is not None
        return _checked(at)


def _opened(stack: ExitStack, path: str, flags: int, folder: int | None = None) -> int:
    handle = os.open(path, flags, dir_fd=folder)
    stack.callback(os.close, handle)
    return handle


def _checked(handle: int) -> int:
    """Another file may have replaced the checked one before it was opened."""
    _require_regular(os.fstat(handle))
    return handle


def _require_regular(found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise OSError(SAYS("folder"))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(SAYS("no regular file"))


MAX_LINE_LENGTH = 200

DEFINITION = r"(?:(?:async +def +|def +|class +)(\w+)(?= *[(:])|(\w+)(?= *[=:]))"


def _utf16_of(source: bytes) -> str:
    """The encoding of a file in UTF-16, by its mark or because every other byte of its start is 0; else empty."""
    if source.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    start = source[:100]
    halves = start[::2], start[1::2]
    if len(start) < 2 or any(halves[0]) == any(halves[1]):
        return ""
    return "utf-16-be" if any(halves[1]) else "utf-16-le"


class Submission:
    """A Python file or notebook with definitions named after puzzles. `problem` is the error if it cannot be read."""

    def __init__(self, path: Path, source: Content) -> None:
        self.path = path
        self.text = ""
        self.cells: list[NotebookCell] = []
        """The cells of a notebook, once the sandbox has found them."""
        self.problem: Exception | None = None
        if isinstance(source, OSError):
            self.problem = source
            return
        try:
            if len(source) > MAX_FILE_SIZE:
                raise UnreadableError(SAYS("file too large", nbytes=len(source), most=MAX_FILE_SIZE))
            self._decode(source)
        except (SyntaxError, ValueError, UnreadableError) as why:
            self.problem = why

    @classmethod
    def read(cls, path: Path) -> Submission:
        return cls.of(SourceFile(str(path)))

    @classmethod
    def of(cls, file: SourceFile) -> Submission:
        """The submission in a file; an error from reading it becomes its problem."""
        return cls(Path(file.path), file.content())

    def _decode(self, source: bytes) -> None:
        """Sets the text, in the encoding that its first lines declare or in UTF-8."""
        utf16 = _utf16_of(source)
        text = source.decode(utf16 or "utf-8-sig", errors="replace")
        if not self._is_json:
            require_few(text)
        self.text = text
        if utf16:
            raise UnreadableError(SAYS("UTF-16"))
        _require_text_encoding(source)
        encoding, _ = detect_encoding(BytesIO(source).readline)
        self.text = source.decode(encoding)

    @property
    def failure(self) -> Failure | None:
        return None if self.problem is None else of_source(self.problem)

    def as_given(self) -> dict[str, Any]:
        return {"name": self.path.name, "text": self.text}

    @cached_property
    def names(self) -> set[str]:
        """The names that the text seems to define; a guess."""
        start = r'(?:\\n|")' if self._is_json else "^"
        return {name for pair in re.findall(start + DEFINITION, self.text, re.MULTILINE) for name in pair if name}

    def looks_defined(self, name: str) -> bool:
        """True if a line looks like a definition of the name, also where Python cannot parse the file."""
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
    """Refuses other encodings before `detect_encoding`, which uses them since Python 3.14."""
    for line in source.split(b"\n", 2)[:2]:
        declared = re.match(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", line)  # PEP 263
        if declared:
            encoding = declared[1].decode()
            with suppress(LookupError):  # `detect_encoding` refuses unknown names
                # Others are not for text (zlib) or slow to decode (punycode).
                if codecs.lookup(encoding).name not in ("utf-8", "utf-8-sig", "ascii", "iso8859-1"):
                    raise UnreadableError(SAYS("other encoding", encoding=encoding))


def source_of(submission: Submission) -> str:
    """The Python code of a file or of all cells of a notebook; empty if it cannot be read."""
    try:
        cells = read_cells(submission.path.name, submission.text)
    except (ValueError, UnreadableError):
        return ""
    return "\n".join(without_magics(cell.text) for cell in cells)


def fingerprints(submission: Submission) -> dict[str, str]:
    """The code of each puzzle's definition, and of everything else under ''. Comments and empty lines do not count."""
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


# --- The files at paths of a command line ---


MAX_DEPTH = 32
"""Levels of folders that are searched."""


def submissions(paths: Sequence[str]) -> list[SourceFile]:
    """The given files, and every Python file and notebook below the given folders, each once.

    A single path may be a link. Several paths, as the shell expands `class/*`, may not lead through a link below the
    folder that they share.
    """
    return [file for files in found_in(paths).values() for file in files]


def found_in(paths: Sequence[str]) -> dict[str, list[SourceFile]]:
    """`submissions`, by the first path that each was found at."""
    found: dict[str, list[SourceFile]] = {}
    seen: set[str] = set()
    shared = None if len(paths) == 1 else os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in paths])
    for path in paths:
        here = [file for file in _at(path, shared) if os.path.abspath(file.path) not in seen]
        seen.update(os.path.abspath(file.path) for file in here)
        found.setdefault(path, []).extend(here)
    return found


def entries(folder: str) -> list[str]:
    """The sorted names of Python files, notebooks and folders directly in a folder, without hidden names; none if it
    cannot be listed."""
    try:
        with os.scandir(folder) as listed:
            return sorted(one.name for one in listed if _is_shown(folder, one.name, one.is_dir()))
    except OSError:
        return []


def hard_links(files: Iterable[SourceFile]) -> list[list[str]]:
    """The paths of each file that was found under several names."""
    names: dict[tuple[int, int], list[str]] = {}
    for file in files:
        with suppress(OSError, ValueError):
            seen = os.lstat(file.path)
            if seen.st_nlink > 1 and stat.S_ISREG(seen.st_mode):
                names.setdefault((seen.st_dev, seen.st_ino), []).append(file.path)
    return [paths for paths in names.values() if len(paths) > 1]


def _at(path: str, shared: str | None) -> Iterable[SourceFile]:
    if shared is not None:
        below = Path(os.path.abspath(path)).relative_to(shared)
        if any(os.path.islink(os.path.join(shared, part)) for part in (below, *below.parents)):
            return [SourceFile(path, refused=SAYS("link"))]
    return sorted(_below(path)) if os.path.isdir(path) else [SourceFile(path, shared)]


def _below(folder: str) -> Iterator[SourceFile]:
    """Leaves out names that begin with `.` or `_`, and virtual environments."""
    unreadable: list[OSError] = []
    for here, folders, names in os.walk(folder, onerror=unreadable.append):
        folders[:] = [name for name in folders if _is_shown(here, name, True)]
        if Path(here).relative_to(folder).parts[MAX_DEPTH - 1 :]:
            refused = SAYS("too deep", depth=MAX_DEPTH)
            yield from (SourceFile(os.path.join(here, name), refused=refused) for name in folders)
            folders.clear()
        paths = (os.path.join(here, name) for name in folders)
        yield from (SourceFile(path, refused=SAYS("link")) for path in paths if os.path.islink(path))
        for name in names:
            if _is_shown(here, name, False):
                yield SourceFile(os.path.join(here, name), folder)
    for why in unreadable:
        yield SourceFile(str(why.filename), folder, SAYS("folder not listed", why=why.strerror))


def _is_shown(here: str, name: str, is_folder: bool) -> bool:
    if is_folder:
        return not (name.startswith((".", "__")) or os.path.exists(os.path.join(here, name, "pyvenv.cfg")))
    return name.endswith((".py", ".ipynb")) and not name.startswith((".", "_"))


def shared_folder(paths: Sequence[str]) -> str:
    """The folder that contains all paths; empty if they have none in common."""
    try:
        return os.path.commonpath([os.path.dirname(path) for path in paths])
    except ValueError:  # relative and absolute paths, other drives, no files
        return ""
