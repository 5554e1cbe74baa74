"""The catalog: every puzzle by its short name, in the order in which they are best played."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType

from . import basic, ddp, fsdp, gpipe, grad_accum, pipeline, pipeline_fsdp, wsdp
from .puzzle import SchedulePuzzle
from .puzzle import SchedulePuzzle as Puzzle

_MODULES = (basic, grad_accum, ddp, wsdp, fsdp, pipeline, gpipe, pipeline_fsdp)

PUZZLES: Mapping[str, SchedulePuzzle] = MappingProxyType({m.PUZZLE.slug: m.PUZZLE for m in _MODULES})

__all__ = ["PUZZLES", "Puzzle", "SchedulePuzzle", "UnknownPuzzleError", "find"]


class UnknownPuzzleError(LookupError):
    """A name that no puzzle has. The text says which name was probably meant."""


def find(name: str) -> SchedulePuzzle:
    """The puzzle of this short name, or of this number.

    Raises:
        UnknownPuzzleError: there is none; the text names the nearest one, or all of them.
    """
    wanted = name.strip().lower().replace("-", "_")
    for slug, puzzle in PUZZLES.items():
        if wanted in (slug, str(puzzle.number)):
            return puzzle
    near = get_close_matches(wanted, PUZZLES, n=1, cutoff=0.5)
    advice = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(PUZZLES)}"
    raise UnknownPuzzleError(f"there is no puzzle '{name}'; {advice}")
