"""Puzzles by slug, in the order of play; each is loaded from its module on first use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TypeVar

from .puzzle import Puzzle

P = TypeVar("P", bound=Puzzle)


class Listing(Mapping[str, P]):
    """A read-only mapping from slugs to puzzles. `modules` gives, for each slug, the module that defines its PUZZLE.

    Loading on demand keeps commands that only list slugs fast, and free of numpy, which layout puzzles need.
    """

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = dict(modules)

    def __getitem__(self, slug: str) -> P:
        puzzle: P = import_module(self._modules[slug]).PUZZLE
        return puzzle

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)
