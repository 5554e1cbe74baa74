"""The skips of all chapters."""

from __future__ import annotations

from tests.catalog.lessons.tables import (
    classics,
    clusters,
    frontier,
    long_context,
    memory,
    microseconds,
    overlap,
    pipelines,
    splitting,
)
from tests.catalog.lessons.tables.common import Skips

SKIPS: Skips = {
    slug: skips
    for chapter in (classics, memory, pipelines, overlap, splitting, clusters, microseconds, frontier, long_context)
    for slug, skips in chapter.SKIPS.items()
}
