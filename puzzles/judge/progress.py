"""Keeps a player's progress in the platform's data folder: attempts, best scores, hints.

Only the player's own work counts: files that `start` or `next` wrote, files that were watched, and runs in a notebook.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from puzzles.catalog.path import CORE, next_on_path
from puzzles.judge.verdict import Graded, Verdict
from puzzles.tracks import ALL, chapter_of, track_of

HOME = "TRAINING_PUZZLES_HOME"
"""Environment variable that replaces the platform's folder."""


@dataclass
class PuzzleProgress:
    """One puzzle: how often it was graded, the stars and figures of the best verdict, the last hint that was read, and
    its turn: the puzzle graded last has the highest."""

    attempts: int = 0
    stars: int = 0
    figures: dict[str, float] = field(default_factory=dict)
    hints: int = 0
    turn: int = 0

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> PuzzleProgress:
        """A saved entry, without the fields of later versions."""
        known = {one.name for one in fields(cls)}
        entry = cls(**{name: value for name, value in given.items() if name in known})
        if not isinstance(entry.figures, dict) or not all(
            isinstance(n, int | float)
            for n in (entry.attempts, entry.stars, entry.hints, entry.turn, *entry.figures.values())
        ):
            raise ValueError("this is not an entry")
        return entry


def data_folder() -> Path:
    if os.environ.get(HOME):
        return Path(os.environ[HOME])
    import platformdirs  # here, because most commands can do without

    return Path(platformdirs.user_data_dir("training-puzzles", appauthor=False))


def load() -> dict[str, PuzzleProgress]:
    """The entry of every puzzle; an unreadable file counts as empty."""
    entries = {slug: PuzzleProgress() for slug in ALL}
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):
        for slug, given in json.loads(_path().read_text(encoding="utf-8"))["puzzles"].items():
            if slug in entries:
                entries[slug] = PuzzleProgress.of(given)
    return entries


def save(entries: dict[str, PuzzleProgress]) -> None:
    """Replaces the file in one step. Where it cannot be written, progress is not kept."""
    kept = {slug: asdict(entry) for slug, entry in entries.items() if entry != PuzzleProgress()}
    text = json.dumps({"version": 2, "puzzles": kept}, indent=1)
    path = _path()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.{os.getpid()}")
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)


def add_own_file(path: str | Path) -> None:
    """Counts a file as the player's own from now on."""
    with suppress(OSError):
        if not is_own_file(path):
            data_folder().mkdir(parents=True, exist_ok=True)
            with _own_files().open("a", encoding="utf-8") as file:
                file.write(f"\n{json.dumps(os.path.realpath(path))}")


def is_own_file(path: str | Path) -> bool:
    return json.dumps(os.path.realpath(path)) in _own_lines()


def known_file(folder: Path) -> str:
    """The name of the Python file in a folder that was last counted as the player's own and is still there; empty if
    none is."""
    with suppress(OSError, ValueError):
        for path in (Path(json.loads(line)) for line in reversed(_own_lines()) if line):
            if path.suffix == ".py" and path.is_file() and path.parent == folder.resolve():
                return path.name
    return ""


def remember(graded: Graded) -> None:
    """Adds the verdicts on a file, if it is the player's own."""
    if is_own_file(graded.path):
        remember_verdicts(graded.attempted)


def remember_verdicts(attempted: Sequence[Verdict]) -> None:
    """Adds verdicts on the player's own attempts."""
    if not attempted:
        return
    entries = load()
    turn = 1 + max(entry.turn for entry in entries.values())
    for verdict in attempted:
        add(entries[verdict.puzzle], verdict)
        entries[verdict.puzzle].turn = turn
    save(entries)


def add(entry: PuzzleProgress, verdict: Verdict) -> None:
    """Counts an attempt. The best one has the most stars, then the lowest figures in their order."""
    entry.attempts += 1
    if verdict.figures:
        mine, best = (-verdict.stars, *verdict.figures.values()), (-entry.stars, *entry.figures.values())
        if not entry.figures or mine < best:
            entry.stars, entry.figures = verdict.stars, dict(verdict.figures)


def solved_slugs(entries: Mapping[str, PuzzleProgress], passed: Iterable[str] = (), stars: int = 2) -> set[str]:
    """The puzzles with at least `stars` stars, and those in `passed`."""
    return {*passed, *(slug for slug in ALL if entries[slug].stars >= stars)}


def next_slug(
    entries: Mapping[str, PuzzleProgress], after: str = "", passed: Iterable[str] = (), stars: int = 2
) -> str | None:
    """The puzzle to try next; None if all are solved.

    After a core puzzle: the next one on the core path, which leaves out the prerequisites of solved puzzles. After an
    extra puzzle: the next one in its chapter, then on the path. When the path is done: the next one with fewer `stars`
    in the track, then anywhere.

    `after` defaults to the puzzle that was graded last. Puzzles in `passed` count as solved.
    """
    begun = [slug for slug in reversed(tuple(ALL)) if entries[slug].attempts]
    after = after or max(begun, key=lambda slug: entries[slug].turn, default=CORE[0])
    solved = solved_slugs(entries, passed, stars)
    slugs, chapter = track_of(after).slugs, chapter_of(after).slugs
    rest = () if after in CORE else chapter[chapter.index(after) :]
    core = next_on_path(solved, after)
    order = (*rest, *([core] if core else []), *slugs[slugs.index(after) :], *slugs, *ALL)
    return next((slug for slug in order if slug not in solved), None)


def remember_hint(slug: str, number: int) -> None:
    entries = load()
    entries[slug].hints = max(entries[slug].hints, number)
    save(entries)


def forget(slugs: Iterable[str] = ()) -> None:
    entries = load()
    for name in tuple(slugs) or ALL:
        entries[name] = PuzzleProgress()
    save(entries)


def _own_files() -> Path:
    return data_folder() / "own_files"


def _own_lines() -> list[str]:
    with suppress(OSError):
        return _own_files().read_text(encoding="utf-8", errors="replace").split("\n")
    return []


def _path() -> Path:
    return data_folder() / "progress.json"
