"""Files of reports: how they are written, and those that an earlier run has listed, so that the next one can remove
what is stale."""

import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from puzzles.failure import sanitized


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


def write(path: Path, content: Callable[[], str]) -> str:
    """Makes and writes a file; a sentence if that fails, whatever the reason."""
    try:
        text = content()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as why:
        return f"cannot write {sanitized(str(path))}: {why.strerror or why}"
    except Exception as why:  # a report that breaks must not affect the others
        return f"cannot make {sanitized(str(path))}: {sanitized(f'{type(why).__name__}: {why}')[:300]}"
    return ""
