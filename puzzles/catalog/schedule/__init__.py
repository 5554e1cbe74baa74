"""The schedule track's catalog, in the order of play: a module of the same name for each puzzle."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from puzzles.catalog.listing import Listing

from .puzzle import SchedulePuzzle
from .puzzle import SchedulePuzzle as Puzzle

PUZZLES: Mapping[str, SchedulePuzzle] = Listing(
    {
        slug: f"{__name__}.{slug}"
        for slug in ("basic", "grad_accum", "ddp", "wsdp", "fsdp", "pipeline", "gpipe", "pipeline_fsdp")
    }
)

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
