"""What one player has done so far: attempts, best scores, hints; in the platform's folder for such data."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from .catalog import PUZZLES
from .verdict import Graded, Verdict

HOME = "TRAINING_PUZZLES_HOME"
"""Names another folder than the platform's."""


@dataclass
class Entry:
    """One puzzle: how often it was graded, the best verdict, and the last hint that was read."""

    attempts: int = 0
    stars: int = 0
    timesteps: float | None = None
    peak_memory: int | None = None
    hints: int = 0


def data_folder() -> Path:
    """Where progress and journals are kept."""
    if os.environ.get(HOME):
        return Path(os.environ[HOME])
    import platformdirs  # here, because most commands can do without

    return Path(platformdirs.user_data_dir("training-puzzles", appauthor=False))


def load() -> dict[str, Entry]:
    """The entry of every puzzle. A file that cannot be read counts as none."""
    entries = {slug: Entry() for slug in PUZZLES}
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        for slug, given in json.loads(_path().read_text(encoding="utf-8"))["puzzles"].items():
            if slug in entries:
                entries[slug] = Entry(**given)
    return entries


def save(entries: dict[str, Entry]) -> None:
    """Writes all or nothing: a file beside it takes its place. Where nothing can be written, nothing is kept."""
    text = json.dumps({"version": 1, "puzzles": {slug: asdict(entry) for slug, entry in entries.items()}}, indent=1)
    path = _path()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)


def remember(graded: Graded) -> None:
    """Adds the verdicts on a player's file."""
    if graded.attempted:
        entries = load()
        for verdict in graded.attempted:
            add(entries[verdict.puzzle], verdict)
        save(entries)


def add(entry: Entry, verdict: Verdict) -> None:
    """One more attempt; the best is the one with most stars, then least time, then least memory."""
    entry.attempts += 1
    if verdict.timesteps is not None and verdict.peak_memory is not None:
        mine = (-verdict.stars, verdict.timesteps, verdict.peak_memory)
        if entry.timesteps is None or mine < (-entry.stars, entry.timesteps, entry.peak_memory or 0):
            entry.stars, entry.timesteps, entry.peak_memory = verdict.stars, verdict.timesteps, verdict.peak_memory


def remember_hint(slug: str, number: int) -> None:
    """Notes that a hint was read."""
    entries = load()
    entries[slug].hints = max(entries[slug].hints, number)
    save(entries)


def forget(slug: str | None = None) -> None:
    """Forgets one puzzle, or all."""
    entries = load()
    for name in [slug] if slug else PUZZLES:
        entries[name] = Entry()
    save(entries)


def _path() -> Path:
    return data_folder() / "progress.json"
