"""Puzzles whose targets of traffic or of the steady peak are not stated yet."""

from __future__ import annotations

from puzzles.catalog.schedule import CLASSICS, PUZZLES

PENDING = {
    slug
    for slug, puzzle in PUZZLES.items()
    if (puzzle.goal.size.ranks > 1 and puzzle.goal.traffic is None)
    or (slug not in CLASSICS.files and not puzzle.goal.steady)
}

READY = [slug for slug in PUZZLES if slug not in PENDING]
MODERN = [slug for slug in READY if slug not in CLASSICS.files]
