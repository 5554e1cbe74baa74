"""The catalog of the schedule track, in the order of play: one module per puzzle, named after it."""

from __future__ import annotations

from collections.abc import Mapping

from puzzles.catalog.listing import Listing

from .puzzle import SchedulePuzzle

PUZZLES: Mapping[str, SchedulePuzzle] = Listing(
    {
        slug: f"{__name__}.{slug}"
        for slug in ("basic", "grad_accum", "ddp", "wsdp", "fsdp", "pipeline", "gpipe", "pipeline_fsdp")
    }
)

__all__ = ["PUZZLES", "SchedulePuzzle"]
