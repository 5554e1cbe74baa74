"""What a puzzle has in every track: its name, texts, the code that a player starts from, the calls that it allows or
forbids; and how these are read from its file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .fields import Fields
from .paper import Paper, cited

GAP = "# ----- your code -----"
END_OF_GAP = "# ----- end of your code -----"
"""The two comments that mark a starter's gap."""


@dataclass(frozen=True, kw_only=True)
class Puzzle:
    """One puzzle. Texts are paragraphs of plain Markdown; each track adds its sizes and targets."""

    slug: str
    """The short name, which is also the name of the function or class that solves the puzzle."""
    title: str
    statement: str
    starter: str
    """Source of the function or class to write, with one or more gaps."""
    hints: tuple[str, ...]
    """From a gentle nudge to the full idea."""
    concept: str
    in_practice: str
    """How real systems do it."""
    sources: tuple[Paper | str, ...]
    credit: str = ""
    """The work that it is based on; printed below the sources."""
    allowed: tuple[str, ...] = ()
    """The only calls that a solution may make; empty if it may make any, except for those that are forbidden."""
    forbidden: tuple[str, ...] = ()
    praise: str = "No better solution is known."
    """A sentence for three stars, shown below the puppies."""

    def refuses(self, call: str) -> bool:
        """True if a solution may not make this call."""
        return call in self.forbidden or bool(self.allowed and call not in self.allowed)

    def rule_text(self) -> str:
        """The rule on calls, after 'this puzzle'."""
        return f"allows only {', '.join(self.allowed)}" if self.allowed else f"forbids: {', '.join(self.forbidden)}"


def publication(fields: Fields, name: str) -> Paper:
    """A field that names a publication."""
    source = cited(fields.text(name))
    if isinstance(source, str):
        raise fields.refusal(f"there is no publication '{source}' in puzzles/content/papers.toml", name)
    return source


def texts_of(fields: Fields) -> dict[str, Any]:
    """The texts that puzzles of every track have."""
    return {
        "title": fields.text("title"),
        "statement": fields.text("statement").strip() + "\n",
        "starter": fields.text("starter").strip() + "\n",
        "hints": fields.texts("hints"),
        "concept": fields.text("concept", "").strip(),
        "in_practice": fields.text("in_practice", "").strip(),
        "sources": tuple(map(cited, fields.texts("sources"))),
        "credit": fields.text("credit", ""),
        "praise": fields.text("praise", "No better solution is known."),
    }


def rules_of(fields: Fields, known: tuple[str, ...]) -> dict[str, Any]:
    """The calls that are allowed or forbidden."""
    rules = {name: fields.texts(name, known) for name in ("allowed", "forbidden")}
    if rules["allowed"] and rules["forbidden"]:
        raise fields.refusal("give either the calls that are allowed, or those that are forbidden")
    return rules
