"""A chapter of the engine's catalog: puzzles that split the same thing, and the trials that grade them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from puzzles.catalog.listing import Listing

from .puzzle import EnginePuzzle

if TYPE_CHECKING:
    from .trial import Trial


@dataclass(frozen=True)
class Chapter:
    """A package with a module of texts for each puzzle. Its module `trials` defines TRIALS: for each slug, the makers
    of its trials, the first with the shown data."""

    package: str
    title: str
    idea: str
    files: Mapping[str, str]
    """Slugs in the order of play, each with the name of its module in the package."""

    @property
    def name(self) -> str:
        """The package's last name: 'data'."""
        return self.package.rpartition(".")[2]

    @property
    def modules(self) -> dict[str, str]:
        """Slugs with the full names of their modules."""
        return {slug: f"{self.package}.{file}" for slug, file in self.files.items()}

    @property
    def puzzles(self) -> tuple[EnginePuzzle, ...]:
        return tuple(Listing[EnginePuzzle](self.modules).values())

    def trials(self, slug: str) -> tuple[Callable[[], Trial], ...]:
        """Makers of a puzzle's trials. They need numpy, so they are loaded only here."""
        found: dict[str, Any] = import_module(f"{self.package}.trials").TRIALS
        return tuple(found[slug])
