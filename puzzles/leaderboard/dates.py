"""When each entry was found: by the commit that has added its file, or by a table."""

import csv
import io
import subprocess
from datetime import UTC, date, datetime
from pathlib import Path

from .entry import EntryError


def dates_of(folder: Path, source: str) -> dict[str, str]:
    """The day of each file in a folder, as 2026-11-20, by its path there. `source` is 'git', or a CSV file with the
    columns `file` and `date`.

    Raises:
        EntryError: git has no history of the folder, or the table cannot be used.
    """
    return _from_git(folder) if source == "git" else _from_table(Path(source))


def _from_git(folder: Path) -> dict[str, str]:
    """Days are those of UTC, so that everybody makes the same board."""
    words = ["log", "--diff-filter=A", "--no-renames", "--format=%x00%ct", "--name-only", "--relative", "-z", "--", "."]
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
        shallow = ["git", "-C", str(folder), "rev-parse", "--is-shallow-repository"]
        is_shallow = subprocess.run(shallow, capture_output=True, text=True, check=True).stdout.strip() == "true"
    except (OSError, subprocess.CalledProcessError) as why:
        said = (getattr(why, "stderr", "") or str(why)).strip().splitlines()[:1]
        raise EntryError(f"git has no history of {folder}: {' '.join(said)}") from None
    if is_shallow:
        raise EntryError(
            f"this clone of {folder} has only a part of the history; 'git fetch --unshallow' gets the rest"
        )
    found: dict[str, str] = {}
    day = ""
    for word in done.stdout.split("\0"):
        name = word.strip("\n")
        if name.isdecimal() and len(name) > 8:
            day = datetime.fromtimestamp(int(name), UTC).date().isoformat()
        elif name and day:
            found[name] = day  # the log begins with the latest, so the first of several is what stays
    return found


def _from_table(path: Path) -> dict[str, str]:
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline="")))
    except (OSError, UnicodeDecodeError, csv.Error) as why:
        raise EntryError(f"{path}: {getattr(why, 'strerror', None) or why}") from None
    found = {}
    for number, row in enumerate(rows, 2):
        name, text = row.get("file"), row.get("date")
        try:
            if not name:
                raise ValueError
            found[name] = date.fromisoformat((text or "")[:10]).isoformat()
        except ValueError:
            raise EntryError(f"{path}, line {number}: it needs a 'file' and a 'date' such as 2026-11-20") from None
    return found
