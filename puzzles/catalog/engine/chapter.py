"""A chapter of the engine's catalog: puzzles that split the same thing, and the trials that grade them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from puzzles.catalog import chapter

from .puzzle import EnginePuzzle

if TYPE_CHECKING:
    from .lower_bounds import MakeBounds
    from .trial import Trial


class EngineChapter(chapter.Chapter):
    """A package with a module of texts for each puzzle. Its module `trials` defines TRIALS: for each slug, the makers
    of its trials, the first with the shown data. Its module `lower_bounds` defines LOWER_BOUNDS: for each slug, what
    makes the least figures of a trial."""

    @property
    def puzzles(self) -> tuple[EnginePuzzle, ...]:
        return tuple(map(self.puzzle, self.slugs))

    def trials(self, slug: str) -> tuple[Callable[[], Trial], ...]:
        """Makers of a puzzle's trials. They need numpy, so they are loaded only here."""
        found: dict[str, Any] = import_module(f"{self.package}.trials").TRIALS
        return tuple(found[slug])

    def lower_bounds(self, slug: str) -> MakeBounds:
        """What makes the least figures of a puzzle's trials."""
        found: dict[str, MakeBounds] = import_module(f"{self.package}.lower_bounds").LOWER_BOUNDS
        return found[slug]
