"""Empties a folder that hostile code has filled, at any depth, with any names and modes, with two open folders at most.

Nothing else may run in the folder meanwhile. Folders within folders are moved up to the first level, so that neither a
path nor the number of open files grows with the depth.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import count

OPEN_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)


class TooManyError(Exception):
    """There are more entries than the limit."""


def empty(folder: str, most: int | None = None) -> bool:
    """Removes all that is in a folder. Returns False if that takes more than `most` steps; then a part is left."""
    top = _opened(folder)
    try:
        _empty(top, iter(range(most)) if most is not None else count())
    except TooManyError:
        return False
    finally:
        os.close(top)
    return True


def _opened(folder: str) -> int:
    try:
        return os.open(folder, OPEN_FOLDER)
    except PermissionError:  # a run has changed the mode of its user's folder
        os.chmod(folder, 0o700)
        return os.open(folder, OPEN_FOLDER)


def remove(folder: str) -> None:
    with suppress(OSError):
        empty(folder)
        os.rmdir(folder)


def _empty(top: int, steps: Iterator[int]) -> None:
    names = (f"{os.urandom(8).hex()}-{number}" for number in count())
    folders = []
    for entry in _entries(top, steps):
        if entry.is_dir(follow_symlinks=False):
            folders.append(entry.name)
        else:
            os.unlink(entry.name, dir_fd=top)
    while folders:
        folder = folders.pop()
        try:
            os.rmdir(folder, dir_fd=top)
        except OSError:  # it is not empty
            folders += _move_up(folder, top, steps, names)
            os.rmdir(folder, dir_fd=top)


def _move_up(name: str, top: int, steps: Iterator[int], names: Iterator[str]) -> list[str]:
    """Removes the files of a folder in `top`, and moves its folders to `top`. Returns their new names."""
    os.chmod(name, 0o700, dir_fd=top)
    inner = os.open(name, OPEN_FOLDER, dir_fd=top)
    moved = []
    try:
        for entry in _entries(inner, steps):
            if entry.is_dir(follow_symlinks=False):
                os.chmod(entry.name, 0o700, dir_fd=inner)  # moving a folder changes it
                moved.append(next(names))
                os.rename(entry.name, moved[-1], src_dir_fd=inner, dst_dir_fd=top)
            else:
                os.unlink(entry.name, dir_fd=inner)
    finally:
        os.close(inner)
    return moved


def _entries(folder: int, steps: Iterator[int]) -> Iterator[os.DirEntry[str]]:
    """The entries of a folder; each takes a step."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if next(steps, None) is None:
                raise TooManyError
            yield entry
