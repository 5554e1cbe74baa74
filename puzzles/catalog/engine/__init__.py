"""The engine's catalog: classes to write, by their names, in the order in which they are best played."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

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

ENGINE_PUZZLES: Mapping[str, EnginePuzzle] = MappingProxyType(
    {puzzle.slug: puzzle for chapter in CHAPTERS for puzzle in chapter.puzzles}
)


def trials_of(puzzle: EnginePuzzle) -> tuple[Callable[[], Trial], ...]:
    """What a puzzle is tried with."""
    (chapter,) = (chapter for chapter in CHAPTERS if puzzle in chapter.puzzles)
    return chapter.trials(puzzle.slug)


__all__ = ["CHAPTERS", "ENGINE_PUZZLES", "Chapter", "EnginePuzzle", "trials_of"]
