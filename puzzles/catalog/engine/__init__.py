"""The catalog of the engine track, by chapters in the order of play: one module per puzzle in its chapter's package."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from puzzles.catalog.listing import Listing

from .annotated import CHAPTER as ANNOTATED
from .chapter import EngineChapter
from .data import CHAPTER as DATA
from .experts import CHAPTER as EXPERTS
from .federated import CHAPTER as FEDERATED
from .inference import CHAPTER as INFERENCE
from .layers import CHAPTER as LAYERS
from .puzzle import EnginePuzzle
from .shards import CHAPTER as SHARDS
from .tensors import CHAPTER as TENSORS

if TYPE_CHECKING:
    from .lower_bounds import FigureBounds
    from .trial import Trial

CHAPTERS: tuple[EngineChapter, ...] = (
    DATA,
    SHARDS,
    TENSORS,
    LAYERS,
    EXPERTS,
    INFERENCE,
    FEDERATED,
    ANNOTATED,
)

ENGINE_PUZZLES: Listing[EnginePuzzle] = Listing(CHAPTERS)


def trials_of(puzzle: EnginePuzzle) -> tuple[Callable[[], Trial], ...]:
    """Makers of the trials that a class is graded with; the first is the one shown."""
    trials: tuple[Callable[[], Trial], ...] = _chapter_of(puzzle).trials(puzzle.slug)
    return trials


def lower_bounds_of(puzzle: EnginePuzzle, trial: Trial) -> FigureBounds:
    """The least figures of one of its trials, by figure; none where a chapter names none, as teachers' need not."""
    chapter = _chapter_of(puzzle)
    found: FigureBounds = chapter.lower_bounds(puzzle.slug)(trial) if hasattr(chapter, "lower_bounds") else {}
    return found


def _chapter_of(puzzle: EnginePuzzle) -> Any:
    return ENGINE_PUZZLES.chapter_of(puzzle.slug)


__all__ = ["CHAPTERS", "ENGINE_PUZZLES", "EngineChapter", "EnginePuzzle", "lower_bounds_of", "trials_of"]
