"""Files of a folder that an earlier run has listed there, so that the next one can remove what is stale."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any


def listed(folder: Path, index: str) -> dict[str, Any]:
    """What the index of a folder says; empty if there is none."""
    try:
        given = json.loads((folder / index).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return given if isinstance(given, dict) else {}


def listed_files(folder: Path, index: str) -> set[str]:
    """The files in a folder that its index says that it has; none that would lie elsewhere."""
    names = listed(folder, index).get("files")
    inside = folder.resolve()
    found = {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()
    return {name for name in found if (folder / name).resolve().is_relative_to(inside)}


def remove(folder: Path, names: Iterable[str]) -> None:
    """Removes files of a folder; one that cannot be removed stays."""
    for name in names:
        with suppress(OSError):
            (folder / name).unlink(missing_ok=True)
