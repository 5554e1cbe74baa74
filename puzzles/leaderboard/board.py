"""Ranks entries: for each puzzle the Pareto front, equal ones side by side, and those that are beaten."""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from puzzles.failure import sanitized
from puzzles.tracks import ALL

from .entry import Entry, EntryError, read_entry

LOOK_ALIKES = dict(
    line.split(" ", 1)
    for line in (Path(__file__).parent / "look_alikes.txt").read_text("utf-8").splitlines()
    if not line.startswith("#")
)
"""By letter or digit, what looks like it in other scripts, and which digits look like a letter."""

TABLE = str.maketrans({other: letter for letter, others in LOOK_ALIKES.items() for other in others})


def players(names: Iterable[str]) -> dict[str, str]:
    """For each name the first, in order, of those that are the same player's."""
    first: dict[str, str] = {}
    player: dict[str, str] = {}
    for name in sorted(set(names)):
        keys = _keys(name)
        known = sorted({player[first[key]] for key in keys if key in first})
        player[name] = known[0] if known else name
        for other, one in list(player.items()):
            if one in known[1:]:
                player[other] = player[name]
        first.update({key: name for key in keys if key not in first})
    return player


def _keys(name: str) -> set[str]:
    """How a name looks: in its own letters, and in small ones. A capital I looks like an l, and an i does not."""
    plain = "".join(c for c in unicodedata.normalize("NFKC", name) if unicodedata.category(c) != "Cf")
    plain = " ".join(plain.split())
    return {plain.translate(TABLE).casefold(), plain.casefold().translate(TABLE)}


class Standing(NamedTuple):
    """Entries with the same figures, first those that were found first, then by name."""

    entries: tuple[Entry, ...]

    @property
    def point(self) -> tuple[float, ...]:
        return self.entries[0].point


class Ranking(NamedTuple):
    """The entries of one puzzle: the front, fastest first, and the beaten ones; of each player those that none of
    their own beats, and one for each point. Names that look alike are one player's."""

    slug: str
    front: tuple[Standing, ...]
    beaten: tuple[Standing, ...]


class Refused(NamedTuple):
    """A file that is not on the board, and why."""

    path: str
    why: str


def collected(folder: Path, dates: Mapping[str, str] | None = None) -> tuple[list[Entry], list[Refused]]:
    """The entries of all JSON files below a folder, in the order of their paths, and the files that are none. `dates`
    on which they were found, by path."""
    entries, refused = [], []
    for path in sorted(folder.rglob("*.json")):
        name = path.relative_to(folder).as_posix()
        try:
            if path.is_symlink():
                raise EntryError("it is a link; put the file itself here")
            entries.append(replace(read_entry(path), found=(dates or {}).get(name, "")))
        except EntryError as why:
            refused.append(Refused(sanitized(name), sanitized(str(why))[:500]))
    return entries, refused


def rankings(entries: Iterable[Entry]) -> list[Ranking]:
    """The rankings of all puzzles that have entries, in the order of play."""
    by_slug: dict[str, list[Entry]] = {}
    for entry in entries:
        by_slug.setdefault(entry.puzzle.slug, []).append(entry)
    return [_ranking(slug, by_slug[slug]) for slug in ALL if slug in by_slug]


def _ranking(slug: str, entries: Sequence[Entry]) -> Ranking:
    player = players(entry.name for entry in entries)
    once = {(player[entry.name], entry.point): entry for entry in sorted(entries, key=_order, reverse=True)}
    own_best = [
        e for e in once.values() if not any(player[o.name] == player[e.name] and o.dominates(e) for o in once.values())
    ]
    front = [e for e in own_best if not any(other.dominates(e) for other in own_best)]
    return Ranking(slug, _places(front), _places([e for e in own_best if e not in front]))


def _places(entries: Iterable[Entry]) -> tuple[Standing, ...]:
    by_point: dict[tuple[float, ...], list[Entry]] = {}
    for entry in sorted(entries, key=_order):
        by_point.setdefault(entry.point, []).append(entry)
    return tuple(Standing(tuple(equal)) for equal in by_point.values())


def _order(entry: Entry) -> tuple[object, ...]:
    return entry.point, entry.found or "9999", entry.name.lower(), entry.name, entry.digest
