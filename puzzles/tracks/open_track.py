"""Needs of a track to which teachers can add puzzles: a listing, and a reader of their files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from puzzles.catalog.fields import Fields, OwnPuzzleError
from puzzles.catalog.listing import Listing
from puzzles.catalog.puzzle import Puzzle

P = TypeVar("P", bound=Puzzle)


class ReferenceRow(NamedTuple):
    """A row that a file of puzzles has on what its reference scores."""

    table: str
    """The list that it is in."""
    fields: Mapping[str, Any]
    place: str
    """At which size, in words."""
    words: str
    """The figures in words."""
    python: str
    """What a puzzle in Python has instead, and where."""

    def agrees_with(self, measured: ReferenceRow) -> bool:
        """True if each field that it has is as it was measured; a row of a file may have fewer fields."""
        same = (self.table, self.place) == (measured.table, measured.place)
        return same and all(measured.fields.get(name) == content for name, content in self.fields.items())


class OpenTrack(Generic[P]):
    """The part of `Track` that is about puzzles of teachers. By default a track takes none."""

    name: str
    listing: Listing[P] | None = None
    """The puzzles of a track to which chapters can be added; other tracks define `groups` and `puzzle` themselves."""

    puzzle_class: str = ""
    """Name of the class of its puzzles, by which a puzzle in Python finds its track."""

    needs_trials: bool = False
    """True if a puzzle needs a Python file with trials, which tell right results."""

    def read(self, slug: str, fields: Fields) -> P:
        """The puzzle that the fields of a file describe.

        Raises:
            OwnPuzzleError: they do not; or puzzles of this track are written in Python.
        """
        raise OwnPuzzleError(f"{fields.where}: puzzles of the track '{self.name}' are written in Python")

    def tightest(self, figures: Mapping[str, float]) -> Mapping[str, float]:
        """The lowest targets that these figures meet, by the names that a file of puzzles has."""
        return {name: int(value) for name, value in figures.items()}

    def reference_games(self, puzzle: P) -> Sequence[P]:
        """The games whose figures a file states for its reference, without targets. None by default."""
        return ()

    def reference_row(
        self, game: P, puzzle: P, file: str, figures: Mapping[str, float], family: str
    ) -> ReferenceRow | None:
        """The row on the reference in this file, which has these figures in one of those games; None if it needs
        none."""
        raise NotImplementedError(f"the track '{self.name}' states no figures of references")

    def stated_rows(self, puzzle: P, file: str) -> Sequence[ReferenceRow]:
        """The rows on the reference in this file that the puzzle has."""
        return ()
