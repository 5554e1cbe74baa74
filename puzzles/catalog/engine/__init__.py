"""The catalog of the engine track, by chapters in the order of play: one module per puzzle in its chapter's package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

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
    from .least import Leasts
    from .trial import Trial

CHAPTERS: tuple[Chapter, ...] = (DATA, TENSORS, SEQUENCE, LAYERS, EXPERTS, INFERENCE, FEDERATED, ANNOTATED)

ENGINE_PUZZLES: Mapping[str, EnginePuzzle] = Listing(
    {slug: module for chapter in CHAPTERS for slug, module in chapter.modules.items()}
)


def trials_of(puzzle: EnginePuzzle) -> tuple[Callable[[], Trial], ...]:
    """Makers of the trials that a class is graded with; the first is the one shown."""
    return _chapter_of(puzzle).trials(puzzle.slug)


def least_of(puzzle: EnginePuzzle, trial: Trial) -> Leasts:
    """The least figures of one of its trials, by figure."""
    return _chapter_of(puzzle).least(puzzle.slug)(trial)


def _chapter_of(puzzle: EnginePuzzle) -> Chapter:
    (chapter,) = (chapter for chapter in CHAPTERS if puzzle.slug in chapter.files)
    return chapter


__all__ = ["CHAPTERS", "ENGINE_PUZZLES", "Chapter", "EnginePuzzle", "least_of", "trials_of"]
