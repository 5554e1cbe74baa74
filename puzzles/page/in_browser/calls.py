"""Calls from the page: the name of a function and its arguments as JSON, answered as JSON.

Puzzles of teachers: their TOML files go into the archive of the site, without solutions, and are added here.
"""

import inspect
import json
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from lib import PuzzleError
from puzzles.custom import add_folder, folders
from puzzles.tracks import TRACKS, Track

# --- Puzzles of teachers ---


FILE = "puzzles/page/in_browser/own.json"
"""Their place in the archive."""


def is_played(track: Track[Any], own: bool) -> bool:
    """True if the page plays a track's puzzles. It plays no `own` classes of a teacher: their trials are Python files,
    and would be published with the site."""
    return track.in_browser and not (own and track.needs_trials)


def packed() -> bytes:
    """The files of all folders that have been added, by folder and name, as JSON; empty if there is none to play."""
    found = {
        folder.path.name: {
            own.file.name: own.file.read_text(encoding="utf-8-sig")
            for own in folder.puzzles.values()
            if is_played(TRACKS[own.track], own=True) and own.file.suffix == ".toml"
        }
        for folder in folders()
    }
    played = {name: texts for name, texts in found.items() if texts}
    return json.dumps(played, sort_keys=True).encode() if played else b""


def add(data: bytes, below: Path) -> None:
    """Writes packed files into folders below this one, and adds these. Layouts come with numpy."""
    has_numpy = find_spec("numpy") is not None
    for name, texts in json.loads(data).items():
        folder = below / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            if has_numpy or "numpy" not in TRACKS[tomllib.loads(text)["track"]].page_needs:
                (folder / file).write_text(text, encoding="utf-8")
        if any(folder.iterdir()):
            add_folder(folder)


# --- Calls ---


Calls = Mapping[str, Callable[..., Any]]


async def answered(calls: Calls, name: str, given: str) -> str:
    """What a function returns, or what it refuses, in words."""
    try:
        value = calls[name](*json.loads(given))
        return json.dumps({"value": await value if inspect.isawaitable(value) else value})
    except (SyntaxError, ValueError, PuzzleError) as why:
        return json.dumps({"error": str(why)})


def add_custom_puzzles() -> None:
    """Adds the puzzles of teachers that are in the archive, if there are any."""
    with suppress(OSError):
        add(resources.files(__package__).joinpath("own.json").read_bytes(), Path(mkdtemp()))
