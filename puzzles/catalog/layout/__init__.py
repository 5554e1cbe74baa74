"""The catalog of the layout track, in the order of play: one module per puzzle, named after it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from puzzles.catalog.listing import Listing

if TYPE_CHECKING:
    from .puzzle import LayoutPuzzle

LAYOUT_PUZZLES: Mapping[str, LayoutPuzzle] = Listing(
    {
        slug: f"{__name__}.{slug}"
        for slug in (
            "matmul",
            "ffn",
            "megatron_mlp",
            "mesh_2x3",
            "boundary",
            "attention",
            "embedding_head",
            "gathers_everything",
            "train_ffn",
            "train_layer",
            "zero_or_tensor",
        )
    }
)

__all__ = ["LAYOUT_PUZZLES"]
