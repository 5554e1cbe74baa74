"""What a track is to the grader and to the commands: its puzzles, what to run of each, and how that is judged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from puzzles.failure import Failure


class Judged(NamedTuple):
    """What a correct run is worth: its figures, the targets that it misses in words, its stars, and notes."""

    figures: Mapping[str, float]
    missed: tuple[str, ...] = ()
    stars: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Attempt:
    """One run: what the child is asked for, and how the row that it sends back is judged. `size` in words.

    One that is `hidden` is at a size of which players are not told: what is wrong only there passes, and is noted.
    """

    size: str
    request: Mapping[str, Any]
    judge: Callable[[Mapping[str, Any]], Judged | Failure]
    hidden: bool = True


def tried_with(size: str) -> str:
    """How a message about a further attempt begins."""
    return size and f"tried with {size}: "


class Part(NamedTuple):
    """Puzzles that belong together, with their idea; `name` is what commands call it."""

    name: str
    title: str
    idea: str
    slugs: tuple[str, ...]


class Section(NamedTuple):
    """A part of a puzzle's page: lines to show as they are, each with what it means, if that is said."""

    title: str
    lines: Sequence[tuple[str, str]]


class Track(ABC):
    """One of the three. Its puzzles are loaded when they are asked for, for some need numpy.

    Every puzzle has a slug, a title, a starter, a statement, hints, a concept, words on practice, and sources.
    """

    name: str
    """In commands and in results, and the stage that plays it in the child."""
    title: str
    idea: str
    longest: int = 1 << 20
    """Bytes that one run may send back."""
    columns: Sequence[tuple[str, str, str]] = ()
    """Of tables of results: heading, figure, target. Without them, `figures_text` fills one column."""

    @property
    @abstractmethod
    def parts(self) -> Sequence[Part]:
        """All puzzles in the order in which they are best played."""

    @property
    def slugs(self) -> tuple[str, ...]:
        return tuple(slug for part in self.parts for slug in part.slugs)

    @abstractmethod
    def puzzle(self, slug: str) -> Any:
        """The puzzle of this slug, exactly."""

    # --- Grading ---

    @abstractmethod
    def targets(self, puzzle: Any) -> Mapping[str, int]:
        """Upper limits by name."""

    @abstractmethod
    def attempts(self, puzzle: Any) -> Iterator[Attempt]:
        """What to run: at the shown size first, then at others."""

    def kept(self, row: Mapping[str, Any]) -> str:
        """What of a run can be judged or drawn again, as JSON; empty if nothing."""
        return ""

    # --- Words ---

    @abstractmethod
    def called(self, puzzle: Any) -> str:
        """How a sentence calls a puzzle: 'puzzle 4', 'FSDP'."""

    def heading(self, puzzle: Any) -> str:
        """That and the title."""
        called = self.called(puzzle)
        return f"{called[:1].upper()}{called[1:]}: {puzzle.title}"

    @abstractmethod
    def limits(self, puzzle: Any) -> str:
        """Size and targets in a line."""

    @abstractmethod
    def figures_text(self, puzzle: Any, figures: Mapping[str, float]) -> str:
        """Figures beside their targets."""

    @abstractmethod
    def starter_head(self, puzzles: Sequence[Any]) -> str:
        """The imports that the starters of these puzzles need."""

    @abstractmethod
    def signature(self, slug: str) -> str:
        """How a definition begins: 'def fsdp(model)'."""

    @abstractmethod
    def record(self, puzzle: Any, figures: Mapping[str, float], stars: int) -> str:
        """What there is to say of the third star, after a pass."""

    def sections(self, puzzle: Any) -> Sequence[Section]:
        """What a puzzle's page has between its statement and its starter."""
        return ()

    def background(self, puzzle: Any) -> Sequence[tuple[str, str]]:
        """Titled paragraphs that follow 'In practice'."""
        return ()

    def sources(self, puzzle: Any) -> Sequence[str]:
        return [*map(str, puzzle.sources), puzzle.credit]
