"""Registry of tracks: finds puzzles, chapters and tracks by name; packages from outside register their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from puzzles.catalog.puzzle import Puzzle

from .base import PuzzleGroup, Track
from .engine.track import Engine
from .layout.track import Layouts
from .schedule.track import Schedules

_tracks: dict[str, Track[Any]] = {}
_by_slug: dict[str, Track[Any]] = {}

TRACKS: Mapping[str, Track[Any]] = MappingProxyType(_tracks)
"""Every track by its name."""

ALL: Mapping[str, Track[Any]] = MappingProxyType(_by_slug)
"""Every slug in the order of play, with its track. No two are alike; some differ in case only."""


class UnknownPuzzleError(LookupError):
    """No puzzle has that name; the text says which name was probably meant."""


def register(track: Track[Any]) -> None:
    """Adds a track: commands, grader, reports and notebooks know its puzzles from now on.

    Its `stage` is imported by the worker, which sees the standard library, this package and site-packages.

    Raises:
        ValueError: the name of the track or of a puzzle is taken.
    """
    taken = {*_tracks, *_by_slug}.intersection((track.name, *track.slugs))
    if taken:
        raise ValueError(f"there is already a track or puzzle of the name '{min(taken)}'")
    _tracks[track.name] = track
    _by_slug.update(dict.fromkeys(track.slugs, track))


def unregister(track: Track[Any]) -> None:
    """Removes a track that was registered."""
    del _tracks[track.name]
    for slug in track.slugs:
        del _by_slug[slug]


@contextmanager
def registered(track: Track[Any]) -> Iterator[None]:
    """Within: the track is there."""
    register(track)
    try:
        yield
    finally:
        unregister(track)


for _one in (Schedules(), Engine(), Layouts()):
    register(_one)


def track_of(slug: str) -> Track[Any]:
    """The track that a puzzle is of."""
    return ALL[slug]


def default_slugs() -> tuple[str, ...]:
    """The puzzles that every file is graded on, and that a fresh file of solutions holds."""
    return tuple(slug for slug, track in ALL.items() if track.graded_by_default)


def find(name: str) -> Puzzle:
    """The puzzle of this name: its slug ('fsdp', 'FSDP'; in any case, where only one puzzle has it), also with its
    track ('layout:ffn'), or its number in the track; a number by itself is that of a schedule.

    Raises:
        UnknownPuzzleError: there is none; the text names the nearest one, or all of them.
    """
    track, _, rest = name.strip().rpartition(":")
    wanted = rest.strip()
    among = [TRACKS[track.strip().lower()]] if track.strip().lower() in TRACKS else list(TRACKS.values())
    if track and len(among) > 1:
        raise UnknownPuzzleError(f"there is no track '{track}'; there are {', '.join(TRACKS)}")
    slugs = {slug: one for one in among for slug in one.slugs}
    if wanted.isdecimal() and int(wanted) < len(among[0].slugs):
        wanted = among[0].slugs[int(wanted)]
    if wanted not in slugs:
        same = [slug for slug in slugs if _loose(slug) == _loose(wanted)]
        if not same:
            kind = f"{among[0].name} puzzle" if len(among) == 1 else "puzzle"
            raise UnknownPuzzleError(f"there is no {kind} '{rest}'; {_advice(wanted, slugs)}")
        wanted = same[0]
    puzzle: Puzzle = slugs[wanted].puzzle(wanted)
    return puzzle


def find_several(name: str) -> tuple[str, ...]:
    """The slugs of a track or of one of its chapters, by its name; of a puzzle, its own.

    Raises:
        UnknownPuzzleError: as `find`.
    """
    group = find_group(name)
    return group.slugs if group else (find(name).slug,)


def find_group(name: str) -> PuzzleGroup | None:
    """A track as a whole, or one of its chapters; None if that is no name of either."""
    wanted = name.strip().lower()
    if wanted in TRACKS:
        track = TRACKS[wanted]
        return PuzzleGroup(track.name, track.title, track.idea, track.slugs)
    return next((group for group in groups() if group.name == wanted), None)


def near_group(name: str) -> str:
    """The track or chapter with the most similar name; empty if there is none."""
    names = [*TRACKS, *(group.name for group in groups())]
    return next(iter(get_close_matches(name.strip().lower(), names, n=1, cutoff=0.7)), "")


def groups() -> Iterator[PuzzleGroup]:
    """The chapters of all tracks."""
    for track in TRACKS.values():
        yield from track.groups


def _loose(name: str) -> str:
    return name.lower().replace("-", "_")


def _advice(wanted: str, slugs: Mapping[str, Track[Any]]) -> str:
    near = get_close_matches(_loose(wanted), [_loose(slug) for slug in slugs], n=1, cutoff=0.5)
    if near:
        return f"did you mean '{next(slug for slug in slugs if _loose(slug) == near[0])}'?"
    return "'puzzles list' names them all" if len(slugs) > 10 else f"there are {', '.join(slugs)}"
