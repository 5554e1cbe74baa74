"""The catalog of the layout track, in the order of play: one module per puzzle, named after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from puzzles.catalog.chapter import Chapter
from puzzles.catalog.listing import Listing

if TYPE_CHECKING:
    from .puzzle import LayoutPuzzle

SLUGS = (
    "matmul ffn megatron_mlp mesh_2x3 boundary attention embedding_head gathers_everything "
    "train_ffn train_layer zero_or_tensor rematerialization fsdp_mlp sequence_ends vocabulary_ends"
).split()

CHAPTER = Chapter(
    package=__name__,
    title="Where tensors live",
    idea="which layouts move the fewest bytes?",
    files={slug: slug for slug in SLUGS},
)

LAYOUT_PUZZLES: Listing[LayoutPuzzle] = Listing([CHAPTER])

__all__ = ["CHAPTER", "LAYOUT_PUZZLES"]
