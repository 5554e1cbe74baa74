"""Ranks entries: for each puzzle the Pareto front, equal ones side by side, and those that are beaten."""

import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from puzzles.failure import sanitized
from puzzles.reports.html import rendered
from puzzles.reports.listed_files import listed_files, remove
from puzzles.tracks import ALL, track_of

from .entry import AXES, Entry, EntryError, read_entry

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


DATA = "board.json"
"""The board as data. It also names all files of the board, so that files of an earlier one can be removed."""


def files_of(rankings: Sequence[Ranking], title: str) -> dict[str, str]:
    """The text of every file, by its path."""
    runs = {_page(entry): entry for one in rankings for place in (*one.front, *one.beaten) for entry in place.entries}
    names = sorted([*runs, "index.html", DATA])
    data = {"title": title, "files": names, "puzzles": [_data(one) for one in rankings]}
    page = rendered("board.html", title=title, rankings=[_shown(one) for one in rankings], page_of=_page)
    return {
        **{name: track_of(one.puzzle.slug).run_page(one.puzzle, one.trace) for name, one in runs.items()},
        "index.html": page,
        DATA: json.dumps(data, indent=1, ensure_ascii=False) + "\n",
    }


def write(files: Mapping[str, str], folder: Path) -> None:
    """Writes the files, and removes files of an earlier board that are no more."""
    remove(folder, listed_files(folder, DATA) - set(files))
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")


def differences(files: Mapping[str, str], folder: Path) -> list[str]:
    """The files that are missing in the folder, are others there, or are of an earlier board."""

    def there(name: str) -> str | None:
        try:
            return (folder / name).read_bytes().decode()
        except (OSError, UnicodeDecodeError):
            return None

    return sorted(
        {name for name, text in files.items() if there(name) != text} | (listed_files(folder, DATA) - set(files))
    )


def _page(entry: Entry) -> str:
    return f"{entry.puzzle.slug}/{entry.digest}.html"


def _data(one: Ranking) -> dict[str, Any]:
    def rows(places: Sequence[Standing]) -> list[dict[str, Any]]:
        return [
            {
                "name": entry.name,
                "stars": entry.verdict.stars,
                **entry.verdict.figures,
                "run": _page(entry),
                **({"found": entry.found} if entry.found else {}),
            }
            for place in places
            for entry in place.entries
        ]

    return {"puzzle": one.slug, "front": rows(one.front), "beaten": rows(one.beaten)}


def _shown(one: Ranking) -> dict[str, Any]:
    track = track_of(one.slug)
    puzzle = track.puzzle(one.slug)
    goal = getattr(puzzle, "goal", None)
    known = [f"{goal.words(r)}{r.family and f': {r.family}'}" for r in goal.open_front] if goal else []
    return {
        "track": track,
        "puzzle": puzzle,
        "front": one.front,
        "beaten": one.beaten,
        "known": known,
        "has_dates": any(entry.found for place in (*one.front, *one.beaten) for entry in place.entries),
        "columns": [AXES[name] for name in one.front[0].entries[0].axes],
    }
