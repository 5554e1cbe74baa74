"""A leaderboard as files: a page, its data as JSON, and a nameless page for each run; always the same bytes."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from puzzles.reports.html import environment
from puzzles.reports.listed_files import listed_files, remove
from puzzles.tracks import track_of

from .board import Ranking, Standing
from .entry import AXES, Entry

DATA = "board.json"
"""The board as data. It also names all files of the board, so that files of an earlier one can be removed."""


def files_of(rankings: Sequence[Ranking], title: str) -> dict[str, str]:
    """The text of every file, by its path."""
    runs = {_page(entry): entry for one in rankings for place in (*one.front, *one.beaten) for entry in place.entries}
    names = sorted([*runs, "index.html", DATA])
    data = {"title": title, "files": names, "puzzles": [_data(one) for one in rankings]}
    page = environment().get_template("board.html").render(title=title, rankings=[_shown(one) for one in rankings])
    return {
        **{name: track_of(one.puzzle.slug).run_page(one.puzzle, one.trace) for name, one in runs.items()},
        "index.html": str(page),
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
        "slug": one.slug,
        "heading": track.heading(puzzle),
        "limits": track.limits(puzzle),
        "front": [_row(place) for place in one.front],
        "beaten": [_row(place) for place in one.beaten],
        "known": known,
        "has_dates": any(entry.found for place in (*one.front, *one.beaten) for entry in place.entries),
        "columns": [AXES[name] for name in one.front[0].entries[0].axes],
    }


def _row(place: Standing) -> dict[str, Any]:
    first = place.entries[0]
    return {
        "figures": [f"{value:,}" if isinstance(value, int) else f"{value:g}" for value in place.point],
        "stars": max(entry.verdict.stars for entry in place.entries),
        "found": first.found,
        "kind": track_of(first.puzzle.slug).built(first.puzzle, first.trace),
        "names": [(entry.name, _page(entry)) for entry in place.entries],
    }
