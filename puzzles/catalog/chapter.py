"""A chapter of a catalog: a package with a module for each of its puzzles, in the order of play."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Chapter:
    """Puzzles that belong together, and what they are about."""

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
