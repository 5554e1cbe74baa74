"""The game around the runtime: the catalog of puzzles, the grader, the command line, and for notebooks `play` and
`profile`; and what keeps the current folder off a command's search path.

from puzzles import play, profile

A `click.py` in the current folder would run outside every sandbox. So every program of the game calls
`leave_out_current_folder` before it imports anything else, and this file and the package `training_puzzles` import only
what is part of the interpreter, as not even `typing` is. Rejected: Python's own PYTHONSAFEPATH alone, which has to be
set before Python starts.
"""

import os
import sys
from _frozen_importlib_external import SOURCE_SUFFIXES, FileFinder, SourceFileLoader

TYPE_CHECKING = False  # `typing` is not imported
if TYPE_CHECKING:
    from typing import Any

__all__ = ["play", "profile"]

# --- What is imported from where ---

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
"""The folder of `lib`, `drawing` and `puzzles`; in a clone it may be the current one."""

OURS = ("lib", "drawing", "puzzles", "solutions")

START = f"import sys; sys.path.insert(0, {ROOT!r}); from puzzles import find_our_packages; find_our_packages()"
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


# --- For notebooks ---


def __getattr__(name: str) -> "Any":
    """Each is loaded when it is asked for, so that importing one module of the package loads only that."""
    if name == "play":
        _require_our_lib()
        from puzzles.player.play import play

        return play
    if name == "profile":
        _require_our_lib()
        from puzzles.player.profile import profile

        return profile
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class OtherLibError(ImportError):
    """Another `lib` comes before the game's, such as the original puzzles' in the current folder."""

    def _render_traceback_(self) -> list[str]:
        """The text that IPython shows: this sentence, without the machinery."""
        return [f"ImportError: {self}"]


def _require_our_lib() -> None:
    """Refuses to go on with another module called `lib`."""
    from importlib.util import find_spec  # here, as above

    found = find_spec("lib")
    place = (found and found.origin) or "another module"
    if os.path.dirname(os.path.realpath(place)) != os.path.join(ROOT, "lib"):
        raise OtherLibError(
            f"{place} hides the game's own lib; restart Python and write 'import training_puzzles' first, or work in "
            "another folder",
            name="lib",
        )
