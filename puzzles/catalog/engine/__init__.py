"""The engine track's catalog, by chapters, in the order of play: a module for each puzzle in its chapter's package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from puzzles.catalog.listing import Listing

from . import annotated, data, experts, federated, inference, layers, sequence, tensors
from .chapter import Chapter
from .puzzle import EnginePuzzle

if TYPE_CHECKING:
    from .trial import Trial

CHAPTERS: tuple[Chapter, ...] = (
    data.CHAPTER,
    tensors.CHAPTER,
    sequence.CHAPTER,
    layers.CHAPTER,
    experts.CHAPTER,
    inference.CHAPTER,
    federated.CHAPTER,
    annotated.CHAPTER,
)

ENGINE_PUZZLES: Mapping[str, EnginePuzzle] = Listing(
    {slug: module for chapter in CHAPTERS for slug, module in chapter.modules.items()}
)


def trials_of(puzzle: EnginePuzzle) -> tuple[Callable[[], Trial], ...]:
    """Makers of the trials that a class is graded with; the first is the one shown."""
    (chapter,) = (chapter for chapter in CHAPTERS if puzzle.slug in chapter.files)
    return chapter.trials(puzzle.slug)


__all__ = ["CHAPTERS", "ENGINE_PUZZLES", "Chapter", "EnginePuzzle", "trials_of"]
