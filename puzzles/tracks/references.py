"""Finds the reference solution of a puzzle, where the game is installed with its solutions."""

from pathlib import Path

from puzzles.sandbox.visible_files import INSTALL_ROOT

from .registry import SHIPPED, track_of

SOLUTIONS = INSTALL_ROOT / "solutions"


def reference_file(slug: str) -> Path | None:
    """The file with the reference; None for a teacher's puzzle, and where there are no solutions."""
    if slug not in SHIPPED:
        return None
    track = track_of(slug).name
    folder = SOLUTIONS if track == "schedule" else SOLUTIONS / track
    named = (path for path in sorted(folder.glob("*.py")) if _plain(path.stem) == _plain(slug))
    return next(named, None)


def _plain(name: str) -> str:
    """A slug and the name of its file differ in underscores and case: FedAvg, fed_avg."""
    return name.replace("_", "").lower()
