"""The schedule track's catalog, in the order of play: a module of the same name for each puzzle."""

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
