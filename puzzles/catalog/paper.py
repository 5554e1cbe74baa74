"""A publication, as puzzles cite it by its name in puzzles/content/papers.toml."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from .content import PACKAGE, content
from .fields import Fields


class Paper(NamedTuple):
    """A publication: its authors (abridged), year, title, and venue or address."""

    authors: str
    year: int
    title: str
    where: str
    note: str = ""
    """Why one puzzle cites it; empty in the list of all."""

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


@cache
def paper(name: str) -> Paper:
    """The publication of this name."""
    fields = Fields(f"{PACKAGE}/papers.toml", content()["papers.toml"]).table(name)
    found = Paper(fields.text("authors"), fields.number("year"), fields.text("title"), fields.text("where"))
    fields.done()
    return found


def papers() -> Mapping[str, Paper]:
    """Every publication by its name."""
    return {name: paper(name) for name in content()["papers.toml"]}


def cited(source: str) -> Paper | str:
    """A publication by its name, after which a colon and a note may say what it is cited for; other texts as they
    are."""
    name, _, note = source.partition(": ")
    return paper(name).cited_for(note) if name in content()["papers.toml"] else source
