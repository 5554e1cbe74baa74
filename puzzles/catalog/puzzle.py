"""What a puzzle has in every track, the publications that it cites, and the listing of a track's puzzles.

A puzzle is a frozen dataclass, which each track extends by its sizes and targets; how a definition is judged is the
track's. The texts and rules that all files have are read here. A publication is written once, in papers.toml, and cited
by its name. A listing loads a puzzle when it is first asked for, so that commands which only list slugs stay fast.
Rejected: a list of puzzles, which would load all of them, with numpy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from .content import PACKAGE, PuzzleGroup, content
from .fields import Fields

if TYPE_CHECKING:
    from lib.pipelines import Recognition

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


# --- Who published a schedule ---


@cache
def papers_of_schedules() -> Mapping[str, tuple[str, ...]]:
    """By schedule that `lib.pipelines` names: the papers that published it."""
    from lib.pipelines.rank_work import Names  # here, since only who asks for it needs pipelines

    return {
        Names.GPIPE: ("GPIPE",),
        Names.ONE_F_ONE_B: ("PIPEDREAM",),
        Names.INTERLEAVED: ("MEGATRON_CLUSTERS",),
        Names.BREADTH_FIRST: ("BREADTH_FIRST_PIPELINE",),
        Names.ZB_H1: ("ZERO_BUBBLE",),
        Names.ZB_H2: ("ZERO_BUBBLE",),
        Names.ZB_V: ("ZERO_BUBBLE",),
        Names.INTERLEAVED_ZB: ("ZERO_BUBBLE",),
        Names.V_MIN: ("CONTROLLABLE_MEMORY",),
        Names.V_HALF: ("CONTROLLABLE_MEMORY",),
        Names.DUALPIPE_V: ("DEEPSEEK_V3",),
        Names.DUALPIPE: ("DEEPSEEK_V3",),
        Names.CHIMERA: ("CHIMERA",),
        Names.HANAYO: ("HANAYO",),
        Names.EAGER: ("EAGER_1F1B",),
        Names.SEQ_1F1B: ("SEQ_1F1B",),
        Names.TWO_BW: ("PIPEDREAM_2BW",),
        Names.DATA: ("PYTORCH_DDP",),
        Names.ZERO_1: ("ZERO",),
        Names.ZERO_2: ("ZERO",),
        Names.ZERO_1_OR_2: ("ZERO",),
        Names.ZERO_3: ("ZERO", "PYTORCH_FSDP"),
        Names.HYBRID: ("PYTORCH_FSDP",),
        Names.LOCAL_SGD: ("LOCAL_SGD",),
        Names.DILOCO: ("DILOCO",),
        Names.STREAMING_DILOCO: ("DILOCO", "STREAMING_DILOCO"),
        Names.TENSOR: ("MEGATRON",),
        Names.SEQUENCE: ("SEQUENCE_PARALLELISM",),
        Names.EXPERT: ("GSHARD",),
        Names.RING: ("RING_ATTENTION",),
        Names.ZIGZAG: ("RING_ATTENTION", "STRIPED_ATTENTION"),
        Names.GATHERED_KEYS: ("RING_ATTENTION",),
        Names.ULYSSES: ("ULYSSES",),
        Names.USP: ("USP",),
    }


def with_papers(found: Recognition) -> str:
    """A schedule's name, with authors and year: '1F1B (Narayanan et al. 2019)'."""
    published = [papers_of_schedules().get(name, ()) for name in found.names]
    cited = dict.fromkeys(", ".join(paper(name).short for name in names) for names in published if names)
    return f"{found.text} ({'; '.join(cited)})" if cited else found.text


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
