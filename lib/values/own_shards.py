"""Shards that each replica of a folded run has of its own: what covers what, on all replicas."""

from __future__ import annotations

from collections.abc import Collection

from lib.folding import Own

from . import algebra
from .label_text import HasShards


def covers(value: HasShards, wanted: Collection[int], parts: int, own: Own | None = None) -> bool:
    """True if a value contains every element of shards `wanted` of `parts`; on every replica, if each wants its own."""
    mine = getattr(value, "own", None)
    if mine is not None and (own is None or mine.stride * parts != own.stride * value.total):
        return False
    if own is not None and mine is None:
        wanted, parts = own.around(wanted, parts)
    return algebra.covers(value.shards, value.total, wanted, parts)
