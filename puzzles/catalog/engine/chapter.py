"""A chapter of the engine's catalog: puzzles that split the same thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .puzzle import EnginePuzzle

if TYPE_CHECKING:
    from .trial import Trial


@dataclass(frozen=True)
class Chapter:
    """Puzzles in the order in which they are best played. `package` has their words, and beside these a module
    `trials` with TRIALS: what each puzzle, by its slug, is tried with (the first with the shown data)."""

    package: str
    title: str
    idea: str
    puzzles: tuple[EnginePuzzle, ...]

    def trials(self, slug: str) -> tuple[Callable[[], Trial], ...]:
        """What makes the trials of a puzzle: made only when asked for, because they need numpy."""
        found: dict[str, Any] = import_module(f"{self.package}.trials").TRIALS
        return tuple(found[slug])
