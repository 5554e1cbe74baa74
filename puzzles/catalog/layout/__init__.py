"""The catalog of the layout track: every puzzle by its short name, in the order in which they are best played.

A puzzle is a module of the same name. It needs numpy, so it is loaded when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .layout_puzzle import LayoutPuzzle

SLUGS = (
    "matmul ffn megatron_mlp mesh_2x3 boundary attention embedding_head gathers_everything"
).split()  # fmt: skip
"""In the order of play."""


class Catalog(Mapping[str, "LayoutPuzzle"]):
    """The puzzles by slug."""

    def __getitem__(self, slug: str) -> LayoutPuzzle:
        if slug not in SLUGS:
            raise KeyError(slug)
        puzzle: LayoutPuzzle = import_module(f"{__name__}.{slug}").PUZZLE
        return puzzle

    def __iter__(self) -> Iterator[str]:
        return iter(SLUGS)

    def __len__(self) -> int:
        return len(SLUGS)


LAYOUT_PUZZLES: Mapping[str, LayoutPuzzle] = Catalog()

__all__ = ["LAYOUT_PUZZLES", "SLUGS"]
