"""Puzzles on plans in files."""

from collections.abc import Mapping
from typing import Any

from puzzles.catalog.content import reader_of
from puzzles.tracks import base


class Custom(base.Custom[Any]):
    puzzle_class = "PlanPuzzle"
    solutions = "plan"
    read = staticmethod(reader_of("plan"))

    def tightest(self, figures: Mapping[str, float]) -> dict[str, float]:
        return {"seconds": figures["seconds"]}
