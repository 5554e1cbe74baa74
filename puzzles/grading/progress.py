"""What one player has done so far: attempts, best scores, hints; in the platform's folder for such data."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from puzzles.tracks import ALL, parts

from .verdict import SCHEDULE_FIGURES, Graded, Verdict

HOME = "TRAINING_PUZZLES_HOME"
"""Names another folder than the platform's."""


@dataclass
class Entry:
    """One puzzle: how often it was graded, the stars and figures of the best verdict, and the last hint that was
    read."""

    attempts: int = 0
    stars: int = 0
    figures: dict[str, float] = field(default_factory=dict)
    hints: int = 0

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Entry:
        """An entry as it was saved; before there were three tracks, figures stood by themselves."""
        rest = {name: value for name, value in given.items() if name not in SCHEDULE_FIGURES}
        old = {name: given[name] for name in SCHEDULE_FIGURES if given.get(name) is not None}
        entry = cls(**{"figures": old, **rest})
        if not isinstance(entry.figures, dict) or not all(
            isinstance(n, int | float) for n in (entry.attempts, entry.stars, entry.hints, *entry.figures.values())
        ):
            raise ValueError("this is no entry")
        return entry


def data_folder() -> Path:
    """Where progress and checkpoints are kept."""
    if os.environ.get(HOME):
        return Path(os.environ[HOME])
    import platformdirs  # here, because most commands can do without

    return Path(platformdirs.user_data_dir("training-puzzles", appauthor=False))


def load() -> dict[str, Entry]:
    """The entry of every puzzle. A file that cannot be read counts as none."""
    entries = {slug: Entry() for slug in ALL}
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        for slug, given in json.loads(_path().read_text(encoding="utf-8"))["puzzles"].items():
            if slug in entries:
                entries[slug] = Entry.of(given)
    return entries


def save(entries: dict[str, Entry]) -> None:
    """Writes all or nothing: a file beside it takes its place. Where nothing can be written, nothing is kept."""
    kept = {slug: asdict(entry) for slug, entry in entries.items() if entry != Entry()}
    text = json.dumps({"version": 2, "puzzles": kept}, indent=1)
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
    """One more attempt; the best is the one with most stars, then with the least first figure, then the next."""
    entry.attempts += 1
    if verdict.figures:
        mine, best = (-verdict.stars, *verdict.figures.values()), (-entry.stars, *entry.figures.values())
        if not entry.figures or mine < best:
            entry.stars, entry.figures = verdict.stars, dict(verdict.figures)


def next_slug(entries: Mapping[str, Entry], stars: int = 2) -> str | None:
    """What to try next: the first puzzle with fewer stars, in the chapter that the player is in; None at the end."""
    open_ones = [[slug for slug in part.slugs if entries[slug].stars < stars] for part in parts()]
    begun = [any(entries[slug].attempts for slug in part.slugs) for part in parts()]
    under_way = [slugs for slugs, here in zip(open_ones, begun) if here and slugs]
    return next((slugs[0] for slugs in (*under_way, *open_ones) if slugs), None)


def remember_hint(slug: str, number: int) -> None:
    """Notes that a hint was read."""
    entries = load()
    entries[slug].hints = max(entries[slug].hints, number)
    save(entries)


def forget(slugs: Iterable[str] = ()) -> None:
    """Forgets some puzzles, or all."""
    entries = load()
    for name in tuple(slugs) or ALL:
        entries[name] = Entry()
    save(entries)


def _path() -> Path:
    return data_folder() / "progress.json"
