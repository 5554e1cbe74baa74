"""Opens a player's file: only a regular one, reached without links from the folder that was given.

A link could lead to a classmate's work or a teacher's file, which would then be graded or quoted; a pipe or a device
could hang whoever opens it.
"""

import os
import stat
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

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
