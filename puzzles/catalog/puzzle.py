"""The part of a puzzle that every track has: its name, its words, and the lines a player starts from."""

from __future__ import annotations

from dataclasses import dataclass

from .papers import Paper

GAP = "# ----- your code -----"
END_OF_GAP = "# ----- end of your code -----"
"""The two comments between which a starter leaves room."""


@dataclass(frozen=True, kw_only=True)
class Puzzle:
    """One puzzle. Texts are paragraphs of plain Markdown; each track adds its sizes and its targets."""

    slug: str
    """The short name, which is also the name of the function or class that solves it."""
    title: str
    statement: str
    starter: str
    """Source of the function or class to write, with one or more gaps."""
    hints: tuple[str, ...]
    """From a gentle nudge to the whole idea."""
    concept: str
    in_practice: str
    """The way real systems do it."""
    sources: tuple[Paper, ...]
    credit: str
    """The work that the track is after; printed below the sources."""
    praise: str = "Good dogs, every one of them."
    """A sentence for three stars, below the puppies."""
