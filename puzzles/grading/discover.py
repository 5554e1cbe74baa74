"""Finds the submissions that paths on the command line name: files, and all Python files and notebooks of folders."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def submissions(paths: Iterable[str]) -> list[str]:
    """Each file itself, and every Python file and notebook below each folder; none twice."""
    found: dict[str, str] = {}
    for path in paths:
        for file in _below(path) if os.path.isdir(path) else [path]:
            found.setdefault(os.path.realpath(file), file)
    return list(found.values())


def _below(folder: str) -> list[str]:
    """Sorted. Left out: `__init__.py` and other names in underscores, hidden names, virtual environments."""
    files = []
    for here, folders, names in os.walk(folder):
        folders[:] = [
            name for name in folders if not name.startswith((".", "__")) and not Path(here, name, "pyvenv.cfg").exists()
        ]
        python = [name for name in names if name.endswith((".py", ".ipynb")) and not name.startswith((".", "_"))]
        files += [os.path.join(here, name) for name in python]
    return sorted(files)
