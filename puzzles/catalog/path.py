"""The core path: ten steps from one device to a cluster, across the tracks, and what comes before each puzzle.

The file of a puzzle says where it comes: `core` is its step and its place there, `after` the puzzles that it builds on,
`tells` the tricks that its text tells, and `on_tensors`, of a schedule, the class that does the same on real tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .content import content, placed
from .fields import Fields


class PathStep(NamedTuple):
    """A step of the path: the puzzles that one idea needs, in the order of play."""

    title: str
    slugs: tuple[str, ...]


def _listed() -> Mapping[str, tuple[str, ...]]:
    """The lists of path.toml by name."""
    fields = Fields("path.toml", content()["path.toml"])
    lists = {name: fields.texts(name) for name in ("steps", "variants")}
    fields.table("tricks").rest()
    fields.done()
    return lists


def _steps(places: Mapping[str, tuple[str, int]]) -> tuple[PathStep, ...]:
    """The steps in their order, from the step and the place in it of each puzzle of the path."""
    titles = _listed()["steps"]
    by_step: dict[str, list[str]] = {title: [] for title in titles}
    for slug in sorted(places, key=lambda slug: places[slug][1]):
        by_step[places[slug][0]].append(slug)
    return tuple(PathStep(title, tuple(slugs)) for title, slugs in by_step.items())


PATH = _steps({slug: where.core for slug, where in placed().items() if where.core})

CORE = tuple(slug for step in PATH for slug in step.slugs)
"""Every core puzzle in the order of play. All other puzzles of the game are extra."""

AFTER: Mapping[str, tuple[str, ...]] = {slug: where.after for slug, where in placed().items() if where.after}
"""The puzzles that a puzzle builds on; those before them follow from it."""

ON_TENSORS: Mapping[str, str] = {slug: where.on_tensors for slug, where in placed().items() if where.on_tensors}
"""By schedule puzzle: the class that does the same on real tensors."""


VARIANTS = {
    variant: tuple(slug for slug, where in placed().items() if where.variant == variant)
    for variant in _listed()["variants"]
}
"""The puzzles by what they split."""


def known(solved: Iterable[str]) -> set[str]:
    """The solved puzzles and everything that comes before them: who has solved `fsdp` needs no `basic`."""
    found: set[str] = set()
    waiting = list(solved)
    while waiting:
        slug = waiting.pop()
        if slug not in found:
            found.add(slug)
            waiting += AFTER.get(slug, ())
    return found


TRICKS: Mapping[str, str] = content()["path.toml"]["tricks"]
"""By name, in words: the ideas that have no puzzle of their own."""

IDEAS = (*placed(), *TRICKS)
"""What a record may need: the idea of a puzzle, or a trick."""


def ideas_of(slug: str) -> frozenset[str]:
    """The ideas that stand in a puzzle's text or before it: the puzzles that it follows, the core puzzles before it,
    and the tricks that these tell. Extra puzzles come after the whole path; of a teacher's puzzle nothing is known."""
    if slug not in placed():
        return frozenset()
    before = known([slug]).union(CORE[: place_of(slug) + 1])
    return frozenset(before.union(*(placed()[one].tells for one in before)))


def place_of(slug: str) -> int:
    """A puzzle's place on the core path, from 0; extra puzzles come after it."""
    return CORE.index(slug) if slug in CORE else len(CORE)


def taught_in(ideas: Iterable[str]) -> tuple[str, ...]:
    """The puzzles that teach some ideas, without repetition; of a trick the first that tells it."""
    slugs = sorted(placed(), key=place_of)
    taught = (idea if idea in placed() else next(s for s in slugs if idea in placed()[s].tells) for idea in ideas)
    return tuple(dict.fromkeys(taught))


def next_on_path(solved: Iterable[str], after: str = "") -> str | None:
    """The next core puzzle; None if the path is done.

    It is the first from `after` on that is not known and builds on known puzzles only; else the first of the path that
    is not known. A core puzzle `after` that is not solved is itself the next.
    """
    solved = set(solved)
    if after in CORE and after not in solved:
        return after
    done = known(solved)
    later = CORE[CORE.index(after) :] if after in CORE else ()
    ready = (slug for slug in later if slug not in done and done.issuperset(AFTER.get(slug, ())))
    return next(ready, None) or next((slug for slug in CORE if slug not in done), None)
