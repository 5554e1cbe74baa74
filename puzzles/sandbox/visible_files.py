"""Files that a submission may read, and files that are hidden from it: solutions, tests, and trials with their results.

Landlock allows what is visible. Where the kernel has none, an audit hook of Python refuses what is hidden.
"""

import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

INSTALL_ROOT = Path(__file__).resolve().parents[2]
"""Folder of lib, drawing and puzzles."""

IMPORT_PACKAGE = (
    INSTALL_ROOT
    if (INSTALL_ROOT / "__init__.py").is_file()
    else INSTALL_ROOT / "puzzles" / "package" / "training_puzzles"
)
"""Folder of the package `training_puzzles`, which submissions may import: in a wheel it is INSTALL_ROOT itself."""

READABLE_PACKAGES = ("lib", "drawing", "puzzles")
"""Packages in it that a submission may read and import."""

HIDDEN_NAMES = ("solutions", "tests", "notebooks", ".git", "puzzles/catalog/engine", "puzzles/content/engine")
"""Folders in it that hold answers; the last two have the trials of classes, with their right results."""

BUILT_NAMES = ("build", "dist", "site")
"""Folders of a clone in which `make` builds sites and wheels, with copies of the same."""

SYSTEM_FOLDERS = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/etc/ld.so.cache", "/nix/store")
"""Folders and files of the machine that programs need, besides Python's own."""

DEVICES_AND_FACTS = ("/dev/urandom", "/dev/random", "/proc/self", "/proc/meminfo", "/proc/cpuinfo")
"""A worker's own folder in /proc, opened by itself: folders of others show their command lines."""

_hidden_besides: list[Path] = []

SITE_PACKAGES = sysconfig.get_path("purelib")


def visible_roots() -> list[Path]:
    """Folders and files that a submission may read, except for hidden folders in them."""
    ours = [INSTALL_ROOT / package for package in READABLE_PACKAGES]
    return [
        *map(Path, SYSTEM_FOLDERS),
        Path(sys.base_prefix),
        Path(SITE_PACKAGES),
        *ours,
        IMPORT_PACKAGE / "__init__.py",
    ]


def hide(folder: Path) -> None:
    """Hides a further folder, such as one of a teacher's puzzles, from the servers that are started from now on."""
    _hidden_besides.append(folder)


def show(folder: Path) -> None:
    """Ends that."""
    _hidden_besides.remove(folder)


def hidden_folders() -> list[Path]:
    """Folders that a submission must not read: solutions, tests, the trials of classes with their right results, and
    folders of teachers' puzzles."""
    roots = {INSTALL_ROOT, Path(SITE_PACKAGES), Path(SITE_PACKAGES) / "training_puzzles"}  # a wheel and a clone
    shipped = [folder for root in sorted(roots) for name in HIDDEN_NAMES if (folder := root / name).is_dir()]
    built = [folder for name in BUILT_NAMES if (folder := INSTALL_ROOT / name).is_dir()]
    return [*shipped, *built, *_hidden_besides]


def hidden_paths() -> list[str]:
    return [os.path.realpath(folder) for folder in hidden_folders()]


def allowed_paths() -> tuple[list[str], list[str]]:
    """Paths that a run may list, and paths that it may read, for a kernel that forbids all others.

    A rule gives leave for all that lies below a path. So a folder with something hidden in it is only listed, which
    imports need, and its other entries are allowed one by one.
    """
    hidden = {*hidden_folders(), *(folder.resolve() for folder in hidden_folders())}
    listed: dict[str, None] = {str(INSTALL_ROOT): None, SITE_PACKAGES: None}
    read: dict[str, None] = dict.fromkeys(DEVICES_AND_FACTS)
    for root in visible_roots():
        for path, is_whole in _around(root, hidden):
            (read if is_whole else listed)[str(path)] = None
    return list(listed), list(read)


def _around(path: Path, hidden: set[Path]) -> Iterator[tuple[Path, bool]]:
    """Entries of a folder down to where nothing hidden is left: (path, whether all below it is visible)."""
    real = path.resolve()
    if path in hidden or real in hidden:
        return
    if not any(one.is_relative_to(real) for one in hidden):
        yield path, True
        return
    yield path, False
    for entry in sorted(path.iterdir()):
        if not (entry.is_symlink() and entry.is_dir()):  # its target is allowed under its own name, or not at all
            yield from _around(entry, hidden)


def read_rules() -> dict[str, Any]:
    """The same as plain data, for a server."""
    return {"readable": allowed_paths(), "hidden": hidden_paths()}
