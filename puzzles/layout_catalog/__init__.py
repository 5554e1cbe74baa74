"""The catalog of the layout track: every puzzle by its short name, in the order in which they are best played."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType

from ..catalog import UnknownPuzzle
from . import attention, boundary, embedding_head, ffn, gathers_everything, matmul, megatron_mlp, mesh_2x3
from .layout_puzzle import LayoutPuzzle

_MODULES = (matmul, ffn, megatron_mlp, mesh_2x3, boundary, attention, embedding_head, gathers_everything)

LAYOUT_PUZZLES: Mapping[str, LayoutPuzzle] = MappingProxyType({m.PUZZLE.slug: m.PUZZLE for m in _MODULES})

__all__ = ["LAYOUT_PUZZLES", "LayoutPuzzle", "find"]


def find(name: str) -> LayoutPuzzle:
    """The layout puzzle of this short name, or of this number.

    Raises:
        UnknownPuzzle: there is none; the text names the nearest one, or all of them.
    """
    wanted = name.strip().lower().replace("-", "_")
    for slug, puzzle in LAYOUT_PUZZLES.items():
        if wanted in (slug, str(puzzle.number)):
            return puzzle
    near = get_close_matches(wanted, LAYOUT_PUZZLES, n=1, cutoff=0.5)
    advice = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(LAYOUT_PUZZLES)}"
    raise UnknownPuzzle(f"there is no layout puzzle '{name}'; {advice}")
