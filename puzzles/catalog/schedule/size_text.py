"""Formats the size of a schedule puzzle: '6 layers, 4 batches, 4 ranks'."""

from __future__ import annotations


def size_text(size: tuple[int, int, int]) -> str:
    """(6, 4, 1) as '6 layers, 4 batches, 1 rank'."""
    names = ("layer", "batch", "rank")
    plural = {"layer": "layers", "batch": "batches", "rank": "ranks"}
    return ", ".join(f"{n} {name if n == 1 else plural[name]}" for n, name in zip(size, names, strict=True))
