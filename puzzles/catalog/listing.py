"""The puzzles of a track by slug, in the order of play, in chapters; teachers' chapters are added to them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from .puzzle import Puzzle

P = TypeVar("P", bound=Puzzle)
P_co = TypeVar("P_co", bound=Puzzle, covariant=True)


class AnyChapter(Protocol[P_co]):
    """What a listing needs of a chapter."""

    @property
    def name(self) -> str:
        """What commands call it."""

    @property
    def title(self) -> str: ...

    @property
    def idea(self) -> str:
        """The question that its puzzles ask."""

    @property
    def slugs(self) -> tuple[str, ...]:
        """In the order of play."""

    def puzzle(self, slug: str) -> P_co:
        """One of its puzzles; it may be loaded only now."""


class Listing(Mapping[str, P]):
    """A mapping from slugs to puzzles, each loaded when it is first asked for."""

    def __init__(self, chapters: Iterable[AnyChapter[P]]) -> None:
        self.chapters: list[AnyChapter[P]] = []
        self._chapter_of: dict[str, AnyChapter[P]] = {}
        for chapter in chapters:
            self.add(chapter)

    def add(self, chapter: AnyChapter[P]) -> None:
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

    def remove(self, chapter: AnyChapter[P]) -> None:
        """Removes a chapter that was added."""
        self.chapters.remove(chapter)
        for slug in chapter.slugs:
            del self._chapter_of[slug]

    def chapter_of(self, slug: str) -> AnyChapter[P]:
        """The chapter that a puzzle is in."""
        return self._chapter_of[slug]

    def __getitem__(self, slug: str) -> P:
        return self._chapter_of[slug].puzzle(slug)

    def __iter__(self) -> Iterator[str]:
        return iter(self._chapter_of)

    def __len__(self) -> int:
        return len(self._chapter_of)
