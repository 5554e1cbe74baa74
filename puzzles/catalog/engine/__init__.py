"""The engine puzzles, by chapters in the order of play; the trials of their classes, and what no class can do with
less."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from puzzles.catalog.content import Chapter, chapters
from puzzles.catalog.puzzle import Listing

from .puzzle import EnginePuzzle, read_puzzle

if TYPE_CHECKING:
    from .lower_bounds import FigureBounds
    from .trial import Trial

CHAPTERS = chapters("engine")

ENGINE_PUZZLES: Listing[EnginePuzzle] = Listing(CHAPTERS)


def trials_of(puzzle: EnginePuzzle) -> tuple[Callable[[], Trial], ...]:
    """Makers of the trials that a class is graded with; the first is the one shown."""
    chapter: Any = ENGINE_PUZZLES.chapter_of(puzzle.slug)
    if not isinstance(chapter, Chapter):  # a teacher's
        return tuple(chapter.trials(puzzle.slug))
    found = _beside(chapter, puzzle).TRIALS
    return tuple(found[puzzle.slug] if isinstance(found, Mapping) else found)


def lower_bounds_of(puzzle: EnginePuzzle, trial: Trial) -> FigureBounds:
    """The least figures of one of its trials, by figure; none where a chapter names none, as teachers' need not."""
    chapter = ENGINE_PUZZLES.chapter_of(puzzle.slug)
    bounds = getattr(_beside(chapter, puzzle), "LOWER_BOUNDS", {}) if isinstance(chapter, Chapter) else {}
    if puzzle.slug not in bounds:
        return {}
    from .lower_bounds import in_every_trial  # here, since it needs numpy

    own: FigureBounds = bounds[puzzle.slug](trial)
    return {**own, **in_every_trial(trial, {*puzzle.targets, *(trial.targets or ())} - own.keys())}


def _beside(chapter: Chapter, puzzle: EnginePuzzle) -> Any:
    """The module that a puzzle of the game names, beside its file; it needs numpy."""
    return import_module(f"puzzles.content.engine.{chapter.name}.{Path(puzzle.trials).stem}")


__all__ = ["CHAPTERS", "ENGINE_PUZZLES", "EnginePuzzle", "lower_bounds_of", "read_puzzle", "trials_of"]
