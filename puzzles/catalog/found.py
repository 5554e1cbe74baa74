"""The index of a folder of records that players found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

INDEX = "index.json"


def rows_of(folder: Path) -> list[Mapping[str, object]]:
    """The rows of a folder's index; none where there is no index. `puzzles record` writes and checks them."""
    try:
        rows = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return rows if isinstance(rows, list) and all(isinstance(row, dict) for row in rows) else []
