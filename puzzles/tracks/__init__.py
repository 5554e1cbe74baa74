"""The tracks of the game, and how their puzzles are found by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from puzzles.catalog.schedule import UnknownPuzzleError
from puzzles.tracks.engine.track import Engine
from puzzles.tracks.layout.track import Layouts
from puzzles.tracks.schedule.track import Schedules

from .base import Part, Track

SCHEDULES, ENGINE, LAYOUTS = Schedules(), Engine(), Layouts()

TRACKS: Mapping[str, Track] = MappingProxyType({track.name: track for track in (SCHEDULES, ENGINE, LAYOUTS)})

ALL: Mapping[str, Track] = MappingProxyType({slug: track for track in TRACKS.values() for slug in track.slugs})
"""Every slug in the order of play, with its track. No two are alike; some differ in case only."""


def track_of(slug: str) -> Track:
    """The track that a puzzle is of."""
    return ALL[slug]


def find(name: str) -> Any:
    """The puzzle of this name: its slug ('fsdp', 'FSDP'; in any case, where only one puzzle has it), also with its
    track ('layout:ffn'), or its number in the track; a number by itself is a schedule's.

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
    return slugs[wanted].puzzle(wanted)


def find_several(name: str) -> tuple[str, ...]:
    """The slugs of a track or of one of its chapters, by its name; of a puzzle, its own.

    Raises:
        UnknownPuzzleError: as `find`.
    """
    part = find_part(name)
    return part.slugs if part else (find(name).slug,)


def find_part(name: str) -> Part | None:
    """A track as a whole, or one of its chapters; None if that is no name of either."""
    wanted = name.strip().lower()
    if wanted in TRACKS:
        track = TRACKS[wanted]
        return Part(track.name, track.title, track.idea, track.slugs)
    return next((part for part in parts() if part.name == wanted), None)


def near_part(name: str) -> str:
    """The track or chapter that is written almost so; empty if there is none."""
    names = [*TRACKS, *(part.name for part in parts())]
    return next(iter(get_close_matches(name.strip().lower(), names, n=1, cutoff=0.7)), "")


def parts() -> Iterator[Part]:
    """The chapters of all tracks."""
    for track in TRACKS.values():
        yield from track.parts


def _loose(name: str) -> str:
    return name.lower().replace("-", "_")


def _advice(wanted: str, slugs: Mapping[str, Track]) -> str:
    near = get_close_matches(_loose(wanted), [_loose(slug) for slug in slugs], n=1, cutoff=0.5)
    if near:
        return f"did you mean '{next(slug for slug in slugs if _loose(slug) == near[0])}'?"
    return "'puzzles list' names them all" if len(slugs) > 10 else f"there are {', '.join(slugs)}"


__all__ = [
    "ALL",
    "ENGINE",
    "LAYOUTS",
    "SCHEDULES",
    "TRACKS",
    "Part",
    "Track",
    "find",
    "find_part",
    "find_several",
    "near_part",
    "parts",
    "track_of",
]
