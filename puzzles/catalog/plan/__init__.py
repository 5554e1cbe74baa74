"""The catalog of the plan track, in the order of play: one module per puzzle, named after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from puzzles.catalog.chapter import Chapter
from puzzles.catalog.listing import Listing

if TYPE_CHECKING:
    from .puzzle import PlanPuzzle

SLUGS = (
    "llama_8b_16 gpt3_384 mixtral_64 llama_70b_256 llama_405b_16384 llama_8b_long llama_70b_40gb llama_405b_1024 "
    "llama_70b_64 deepseek_2048"
).split()

CHAPTER = Chapter(
    package=__name__,
    title="On a real cluster",
    idea="how would you train it?",
    files={slug: slug for slug in SLUGS},
)

PLAN_PUZZLES: Listing[PlanPuzzle] = Listing([CHAPTER])

__all__ = ["CHAPTER", "PLAN_PUZZLES"]
