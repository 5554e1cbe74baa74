"""Finds installed packages that have puzzles, by their entry points."""

import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

ENTRY_POINTS = "training_puzzles.puzzles"
"""Group of entry points; the value of each is the package whose folder holds the puzzles."""

METADATA = (".dist-info", ".egg-info")


def installed_packages() -> list[tuple[str, str]]:
    """The entry points: (name, module)."""
    if not may_have_entry_points():
        return []
    from importlib.metadata import entry_points  # here, because it is slow to import and seldom needed

    return [(point.name, point.module) for point in entry_points(group=ENTRY_POINTS)]


def may_have_entry_points() -> bool:
    """False if no package in an ordinary folder has the group, and there is no other place for packages. Every command
    asks, and reading the metadata of all packages takes a tenth of its time."""
    if any(finder is not PathFinder and hasattr(finder, "find_distributions") for finder in sys.meta_path):
        return True
    return any(map(_may_have_them, sys.path))


def _may_have_them(place: str) -> bool:
    """The same of one entry of `sys.path`."""
    try:
        names = os.listdir(place or ".")
    except OSError:
        return os.path.exists(place)  # an archive, perhaps
    if "EGG-INFO" in names:
        return True
    return any(_names_us(Path(place, name)) for name in names if name.endswith(METADATA))


def _names_us(folder: Path) -> bool:
    try:
        return ENTRY_POINTS.encode() in (folder / "entry_points.txt").read_bytes()
    except FileNotFoundError:
        return False
    except OSError:
        return True
