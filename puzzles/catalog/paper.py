"""A publication, as puzzles cite it."""

from __future__ import annotations

from typing import NamedTuple


class Paper(NamedTuple):
    """A publication: its authors (abridged), year, title, and venue or address."""

    authors: str
    year: int
    title: str
    where: str
    note: str = ""
    """Why one puzzle cites it; empty where `papers` defines it."""

    def __str__(self) -> str:
        note = f" ({self.note})" if self.note else ""
        return f"{self.authors} ({self.year}). {self.title}. {self.where}{note}"

    @property
    def short(self) -> str:
        """'Huang et al. 2019'."""
        first = self.authors.split(",")[0].removesuffix(" et al.").removesuffix(" authors").split()[-1]
        others = " et al." if "," in self.authors or self.authors.endswith(" et al.") else ""
        return f"{first}{others} {self.year}"

    def cited_for(self, note: str) -> Paper:
        """The same publication, cited for something specific: 'for the word micro-batch'."""
        return self._replace(note=note)
