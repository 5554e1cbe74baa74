"""A chapter of a catalog: puzzles that belong together, in the order of play, shipped or from a folder of a teacher."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, TypeVar

from .puzzle import Puzzle

P_co = TypeVar("P_co", bound=Puzzle, covariant=True)


class AnyChapter(Protocol[P_co]):
    """What a listing needs of a chapter."""

    @property
    def name(self) -> str:
        """What commands call it."""

    @property
    def title(self) -> str: ...

    @property
    def idea(self) -> str:
        """The question that its puzzles ask."""

    @property
    def slugs(self) -> tuple[str, ...]:
        """In the order of play."""

    def puzzle(self, slug: str) -> P_co:
        """One of its puzzles; it may be loaded only now."""


@dataclass(frozen=True)
class Chapter:
    """A package with a module for each of its puzzles, which defines its PUZZLE."""

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
    def slugs(self) -> tuple[str, ...]:
        return tuple(self.files)

    def puzzle(self, slug: str) -> Any:
        """The puzzle that a module defines. Loading on demand keeps commands that only list slugs fast, and free of
        numpy, which layout puzzles need."""
        return import_module(f"{self.package}.{self.files[slug]}").PUZZLE
