"""Publications that puzzles cite."""

from __future__ import annotations

from typing import NamedTuple


class Source(NamedTuple):
    """A publication: as many authors as fit, the year, the title, and the venue or address."""

    authors: str
    year: int
    title: str
    where: str

    def __str__(self) -> str:
        return f"{self.authors} ({self.year}). {self.title}. {self.where}"
