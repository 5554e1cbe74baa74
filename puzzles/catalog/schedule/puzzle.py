"""What a puzzle is: a goal, the words around it, and the lines a player starts from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from lib import Goal, Size

ORIGINAL = "After the LLM Training Puzzles by Sasha Rush, https://github.com/srush/LLM-Training-Puzzles"
"""Whom every classic puzzle is owed to."""

GAP = "# ----- your code -----"
END_OF_GAP = "# ----- end of your code -----"
"""The two comments between which a starter leaves room."""


class Source(NamedTuple):
    """A publication: as many authors as fit, the year, the title, and where it is found."""

    authors: str
    year: int
    title: str
    where: str

    def __str__(self) -> str:
        return f"{self.authors} ({self.year}). {self.title}. {self.where}"


@dataclass(frozen=True)
class Puzzle:
    """One puzzle. Texts are paragraphs of plain Markdown; the starter is the source of one function."""

    number: int
    title: str
    goal: Goal
    other_sizes: tuple[Size, ...]
    """Sizes, besides the goal's, at which a general schedule works too."""
    statement: str
    starter: str
    calls: tuple[str, ...]
    """The methods of Model that a solution is likely to need."""
    hints: tuple[str, ...]
    """From a gentle nudge to the whole idea."""
    concept: str
    in_practice: str
    """What real systems do."""
    sources: tuple[Source, ...]
    credit: str = ORIGINAL

    @property
    def slug(self) -> str:
        """The puzzle's short name, which is also the name of the function that solves it."""
        return self.goal.slug
