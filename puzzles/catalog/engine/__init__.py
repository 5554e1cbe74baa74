"""The catalog of the engine track, by chapters in the order of play: one module per puzzle in its chapter's package."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from puzzles.catalog.listing import Listing

from .annotated import CHAPTER as ANNOTATED
from .chapter import Chapter
from .data import CHAPTER as DATA
from .experts import CHAPTER as EXPERTS
from .federated import CHAPTER as FEDERATED
from .inference import CHAPTER as INFERENCE
from .layers import CHAPTER as LAYERS
from .puzzle import EnginePuzzle
from .sequence import CHAPTER as SEQUENCE
from .tensors import CHAPTER as TENSORS

if TYPE_CHECKING:
    from .trial import Trial

CHAPTERS: tuple[Chapter, ...] = (DATA, TENSORS, SEQUENCE, LAYERS, EXPERTS, INFERENCE, FEDERATED, ANNOTATED)

ENGINE_PUZZLES: Listing[EnginePuzzle] = Listing(CHAPTERS)


def trials_of(puzzle: EnginePuzzle) -> tuple[Callable[[], Trial], ...]:
    """Makers of the trials that a class is graded with; the first is the one shown."""
    chapter: Any = ENGINE_PUZZLES.chapter_of(puzzle.slug)
    trials: tuple[Callable[[], Trial], ...] = chapter.trials(puzzle.slug)
    return trials


__all__ = ["CHAPTERS", "ENGINE_PUZZLES", "Chapter", "EnginePuzzle", "trials_of"]
