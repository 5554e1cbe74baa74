"""Words on a puzzle's place on the core path: core or extra, what comes before it, and its twin on real tensors."""

from collections.abc import Iterable

from puzzles.catalog.path import AFTER, CORE, ON_TENSORS

from .registry import SHIPPED

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
    order = f"core {CORE.index(slug) + 1} of {len(CORE)}" if slug in CORE else "extra"
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
