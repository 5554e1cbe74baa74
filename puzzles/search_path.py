"""Keeps the current folder off a command's search path: a `click.py` there would run outside every sandbox.

Every program of the game calls this before it imports anything else. So this file, `puzzles/__init__.py` and the
package `training_puzzles` import only what is part of the interpreter, as not even `typing` is.
"""

import os
import sys
from _frozen_importlib_external import SOURCE_SUFFIXES, FileFinder, SourceFileLoader

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
"""The folder of `lib`, `drawing` and `puzzles`; in a clone it may be the current one."""

OURS = ("lib", "drawing", "puzzles", "solutions")

START = (
    f"import sys; sys.path.insert(0, {ROOT!r}); from puzzles.search_path import find_our_packages; find_our_packages()"
)
"""Begins a program in a process of its own, which then finds our packages."""


class _OurPackages(FileFinder):
    """Finds our packages in ROOT, and no other file of it."""

    def find_spec(self, fullname, *_):  # type: ignore[no-untyped-def]  # called for a path, and for all paths
        return super().find_spec(fullname) if fullname in OURS else None


def leave_out_current_folder() -> None:
    """Takes from `sys.path` the current folder and what PYTHONPATH gives relative to it, here and in processes that
    this one starts. A package that is installed from the current folder stays: it comes after all others."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    unwanted = {_real(entry) for entry in ("", *given) if not os.path.isabs(entry)}
    library = os.path.dirname(os.__file__)
    first = sys.path.index(library) if library in sys.path else len(sys.path)
    sys.path[:first] = [entry for entry in sys.path[:first] if _real(entry) not in unwanted]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(os.path.isabs, given))
    os.environ["PYTHONSAFEPATH"] = "1"
    find_our_packages()


def find_our_packages() -> None:
    """Makes ROOT the first place to look for our packages, and none for other modules."""
    finder = _OurPackages(ROOT, (SourceFileLoader, SOURCE_SUFFIXES))
    sys.path[:] = [entry for entry in sys.path if _real(entry) != ROOT]
    sys.meta_path.insert(0, finder)
    sys.path_importer_cache[ROOT] = finder  # `training_puzzles` puts ROOT on `sys.path`


def _real(entry: str) -> str:
    try:
        return os.path.realpath(entry)
    except OSError:  # the current folder is gone
        return entry
