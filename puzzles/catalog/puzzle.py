"""What a puzzle has in every track, the publications that it cites, and the listing of a track's puzzles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple, TypeVar

from .content import PACKAGE, PuzzleGroup, content
from .fields import Fields

# --- Publications ---


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
    table = Fields(f"{PACKAGE}/papers.toml", content()["papers.toml"]).table(name)
    found = Paper(table.text("authors"), table.number("year"), table.text("title"), table.text("where"))
    table.done()
    return found


def papers() -> Mapping[str, Paper]:
    """Every publication by its name."""
    return {name: paper(name) for name in content()["papers.toml"]}


def cited(source: str) -> Paper | str:
    """A publication by its name, after which a colon and a note may say what it is cited for; other texts as they
    are."""
    name, _, note = source.partition(": ")
    return paper(name).cited_for(note) if name in content()["papers.toml"] else source


# --- Puzzles ---


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


# --- The puzzles of a track ---


P = TypeVar("P", bound=Puzzle)


class Listing(Mapping[str, P]):
    """A mapping from slugs to puzzles, each loaded when it is first asked for."""

    def __init__(self, chapters: Iterable[PuzzleGroup]) -> None:
        self.chapters: list[PuzzleGroup] = []
        self._chapter_of: dict[str, PuzzleGroup] = {}
        for chapter in chapters:
            self.add(chapter)

    def add(self, chapter: PuzzleGroup) -> None:
        """Adds a chapter behind all others.

        Raises:
            ValueError: the name of the chapter or of one of its puzzles is taken.
        """
        names = {one.name for one in self.chapters}
        taken = {slug for slug in chapter.slugs if slug in self._chapter_of} | ({chapter.name} & names)
        if taken:
            raise ValueError(f"there is already a chapter or puzzle named '{min(taken)}'")
        self.chapters.append(chapter)
        self._chapter_of.update(dict.fromkeys(chapter.slugs, chapter))

    def remove(self, chapter: PuzzleGroup) -> None:
        """Removes a chapter that was added."""
        self.chapters.remove(chapter)
        for slug in chapter.slugs:
            del self._chapter_of[slug]

    def chapter_of(self, slug: str) -> PuzzleGroup:
        """The chapter that a puzzle is in."""
        return self._chapter_of[slug]

    def __getitem__(self, slug: str) -> P:
        puzzle: P = self._chapter_of[slug].puzzle(slug)
        return puzzle

    def __iter__(self) -> Iterator[str]:
        return iter(self._chapter_of)

    def __len__(self) -> int:
        return len(self._chapter_of)
