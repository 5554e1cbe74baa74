"""The four tracks: finds puzzles, chapters and references by name; packages from outside register tracks.

from puzzles.tracks import Track, find, register

A name is a slug in any case, a slug with its track, or a place on the core path. No two slugs are alike, and some
differ in case only, so a name in another case is accepted where only one puzzle has it. A wrong name gets the nearest
ones: by spelling first, then by the words that it is a part of. Rejected: a number for every puzzle, since a new puzzle
would change the numbers of others; only the core path has places. Rejected, too: finding tracks by entry points,
because a track that is registered by a call needs no installation in a test.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches, unified_diff
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from puzzles.catalog.content import PuzzleGroup as PuzzleGroup
from puzzles.catalog.fields import RefusedError
from puzzles.catalog.path import AFTER, CORE, ON_TENSORS
from puzzles.catalog.puzzle import Puzzle
from puzzles.failure import UNPARSABLE
from puzzles.sandbox.visible_files import INSTALL_ROOT

from .base import OptionError as OptionError
from .base import Track as Track
from .engine import Engine
from .layout import Layouts
from .plan import Plans
from .schedule import Schedules

if TYPE_CHECKING:
    from .schedule.free_game import FreeGame


MIN_PART, MAX_NEAR = 3, 3
"""Letters of a part of a name by which puzzles are suggested, and how many are."""

MAX_DIGITS = 10
"""Of a puzzle's place. Python refuses to read numbers of thousands."""

_tracks: dict[str, Track[Any]] = {}
_by_slug: dict[str, Track[Any]] = {}

TRACKS: Mapping[str, Track[Any]] = MappingProxyType(_tracks)
"""Every track by its name."""

ALL: Mapping[str, Track[Any]] = MappingProxyType(_by_slug)
"""Every slug in the order of play, with its track. No two are alike; some differ in case only."""


class UnknownPuzzleError(RefusedError, LookupError):
    """No puzzle has that name; the text says which name was probably meant."""


def register(track: Track[Any]) -> None:
    """Adds a track: commands, grader, reports and notebooks know its puzzles from now on.

    The `stage` of its judge is imported by the worker, which sees the standard library, this package and site-packages.
    """
    _require_free(track.name, *track.slugs)
    _tracks[track.name] = track
    _by_slug.update(dict.fromkeys(track.slugs, track))


def add_chapter(track: Track[Any], chapter: PuzzleGroup) -> None:
    """Adds a chapter to a track that has a listing, behind all others."""
    if track.listing is None:
        raise ValueError(f"the track '{track.name}' takes no chapters")
    _require_free(*chapter.slugs)
    if chapter.name in {*TRACKS, *(group.name for group in groups())}:
        raise ValueError(f"there is already a chapter or track named '{chapter.name}'")
    track.listing.add(chapter)
    _by_slug.update(dict.fromkeys(chapter.slugs, track))


def remove_chapter(track: Track[Any], chapter: PuzzleGroup) -> None:
    """Removes a chapter that was added."""
    assert track.listing is not None
    track.listing.remove(chapter)
    for slug in chapter.slugs:
        del _by_slug[slug]


def _require_free(*names: str) -> None:
    taken = {*_tracks, *_by_slug}.intersection(names)
    if taken:
        raise ValueError(f"there is already a track or puzzle named '{min(taken)}'")


def unregister(track: Track[Any]) -> None:
    """Removes a track that was registered."""
    del _tracks[track.name]
    for slug in track.slugs:
        del _by_slug[slug]


for _one in (Schedules(), Engine(), Layouts(), Plans()):
    register(_one)

SHIPPED = frozenset(ALL)
"""The puzzles of the game itself, without teachers' puzzles and tracks from outside."""


def track_of(slug: str) -> Track[Any]:
    """The track that a puzzle is of."""
    return ALL[slug]


def track_for(game: Puzzle | FreeGame) -> Track[Any]:
    """The track that a puzzle or a free game is of: schedules can be run at any size."""
    return track_of(game.slug) if isinstance(game, Puzzle) else TRACKS[game.track]


def default_slugs() -> tuple[str, ...]:
    """The puzzles that every file is graded on, and that a fresh file of solutions holds."""
    return tuple(slug for slug, track in ALL.items() if track.is_default(slug))


def find(name: str) -> Puzzle:
    """The puzzle of this name: its slug ('fsdp', 'FSDP'; in any case, where only one puzzle has it), also with its
    track ('layout:ffn'), or its place on the core path, from 1.

    Raises:
        UnknownPuzzleError: there is none; the text names the nearest one, or all of them.
    """
    track, _, rest = name.strip().rpartition(":")
    wanted = rest.strip()
    among = [TRACKS[track.strip().lower()]] if track.strip().lower() in TRACKS else list(TRACKS.values())
    if track and len(among) > 1:
        raise UnknownPuzzleError(f"there is no track '{track}'; there are {', '.join(TRACKS)}")
    slugs = {slug: one for one in among for slug in one.slugs}
    if wanted.isdecimal() and len(wanted) < MAX_DIGITS and 0 < int(wanted) <= len(CORE):
        wanted = CORE[int(wanted) - 1]
    if wanted not in slugs:
        same = [slug for slug in slugs if _loose(slug) == _loose(wanted)]
        if not same:
            kind = f"{among[0].name} puzzle" if len(among) == 1 else "puzzle"
            raise UnknownPuzzleError(f"there is no {kind} '{rest}'; {_advice(wanted, slugs)}")
        wanted = same[0]
    puzzle: Puzzle = slugs[wanted].puzzle(wanted)
    return puzzle


def find_several(name: str) -> tuple[str, ...]:
    """The slugs of a track, of a chapter, or of a folder of several, by its name; of a puzzle, its own."""
    group = find_group(name)
    return group.slugs if group else (find(name).slug,)


def find_group(name: str) -> PuzzleGroup | None:
    """A track as a whole, one of its chapters, or all chapters of a folder; None if nothing has that name."""
    wanted = name.strip().lower()
    if wanted in TRACKS:
        track = TRACKS[wanted]
        return PuzzleGroup(track.name, track.title, track.idea, track.slugs)
    found = [group for group in groups() if wanted and wanted in (group.name, group.folder)]
    if not found:
        return None
    slugs = tuple(slug for one in found for slug in one.slugs)
    return PuzzleGroup(wanted, found[0].title, found[0].idea, slugs, found[0].folder)


def near_group(name: str) -> str:
    """The track or chapter with the most similar name; empty if there is none."""
    names = [*TRACKS, *(name for group in groups() for name in (group.name, group.folder) if name)]
    return next(iter(get_close_matches(name.strip().lower(), names, n=1, cutoff=0.7)), "")


def groups() -> Iterator[PuzzleGroup]:
    """The chapters of all tracks."""
    for track in TRACKS.values():
        yield from track.groups


def chapter_of(slug: str) -> PuzzleGroup:
    """The chapter that a puzzle is in."""
    return next(group for group in track_of(slug).groups if slug in group.slugs)


def _loose(name: str) -> str:
    return name.lower().replace("-", "_")


def _near(wanted: str, slugs: Iterable[str]) -> list[str]:
    """The slugs that were probably meant: those spelled alike, else those that begin with or contain the word."""
    by_name: dict[str, str] = {}
    for slug in slugs:
        by_name.setdefault(_loose(slug), slug)
    whole = len(wanted) >= MIN_PART
    ways = (
        get_close_matches(wanted, by_name, MAX_NEAR, cutoff=0.85),
        [name for name in by_name if whole and name.startswith(wanted)],
        [name for name in by_name if whole and wanted in name],
        get_close_matches(wanted, by_name, 1, cutoff=0.65),
    )
    found = next(filter(None, ways), [])
    return [slug for name, slug in by_name.items() if name in found][:MAX_NEAR]


def _advice(wanted: str, slugs: Mapping[str, Track[Any]]) -> str:
    if near := _near(_loose(wanted), slugs):
        *others, last = map(repr, near)
        return f"did you mean {', '.join(others)} or {last}?" if others else f"did you mean {last}?"
    if len(slugs) > 10:
        return "'puzzles list' names them all; for your teacher's puzzles, add --puzzles FOLDER"
    return f"there are {', '.join(slugs)}"


AS_SCHEDULE = {tensors: schedule for schedule, tensors in ON_TENSORS.items()}


def mark(slug: str) -> str:
    """'core' or 'extra'; empty for a teacher's puzzle and for tracks from outside."""
    if slug not in SHIPPED:
        return ""
    return "core" if slug in CORE else "extra"


def place(slug: str) -> str:
    """'core 7 of 25; after: zero1; the same on real tensors: FSDP'; empty where there is no mark."""
    if not mark(slug):
        return ""
    order = f"core {CORE.index(slug) + 1} of {len(CORE)}" if slug in CORE else "optional"
    parts = [order]
    if slug in AFTER:
        parts.append(f"after: {', '.join(AFTER[slug])}")
    if slug in ON_TENSORS:
        parts.append(f"the same on real tensors: {ON_TENSORS[slug]}")
    if slug in AS_SCHEDULE:
        parts.append(f"the same as a schedule: {AS_SCHEDULE[slug]}")
    return "; ".join(parts)


def before(slugs: Iterable[str]) -> str:
    """What several puzzles come after, as a sentence; empty where nothing is known of it."""
    shown = [f"{slug} after {' and '.join(AFTER[slug])}" for slug in slugs if mark(slug) and slug in AFTER]
    return f"Order: {', '.join(shown)}." if shown else ""


# --- The reference solution of a puzzle, and the lines in which another differs from it ---


SOLUTIONS = INSTALL_ROOT / "solutions"


def reference_file(slug: str) -> Path | None:
    """The file with the reference; None for a teacher's puzzle, and where there are no solutions."""
    if slug not in SHIPPED:
        return None
    folder = solutions_of(track_of(slug).name)
    named = (path for path in sorted(folder.glob("*.py")) if _plain(path.stem) == _plain(slug))
    return next(named, None)


def solutions_of(track: str) -> Path:
    """The folder with the references of a track."""
    return SOLUTIONS / TRACKS[track].solutions


def _plain(name: str) -> str:
    """A slug and the name of its file differ in underscores and case: FedAvg, fed_avg."""
    return name.replace("_", "").lower()


def differing_lines(mine: str, theirs: str, name: str) -> list[str] | None:
    """Where two sources define `name` differently, as a diff without context; None if one of them has no definition."""
    a, b = _definition(mine, name), _definition(theirs, name)
    return list(unified_diff(a, b, n=0, lineterm=""))[2:] if a and b else None


def as_lines(differences: list[str]) -> Iterator[str]:
    """The same as people read it, with an empty line between two places."""
    if not differences:
        yield "Both have the same lines."
        return
    yield "- yours, + reference"
    for number, line in enumerate(differences):
        if not line.startswith("@@"):
            yield f"{line[0]} {line[1:]}"
        elif number:
            yield ""


def _definition(source: str, name: str) -> list[str]:
    """The lines of the last definition of this name; empty if there is none."""
    try:
        nodes = ast.parse(source).body
    except UNPARSABLE:
        return []
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = [node for node in nodes if isinstance(node, kinds) and node.name == name]
    if not found:
        return []
    for node in ast.walk(found[-1]):
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(found[-1]).splitlines()
