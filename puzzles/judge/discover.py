"""Finds the submissions at paths of the command line: files, and all Python files and notebooks in folders.

Entries that cannot be graded, such as links, are listed with the reason, so that nobody is missing from a report.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from .submission import SourceFile
from .words import SAYS

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
