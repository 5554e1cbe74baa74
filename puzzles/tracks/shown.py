"""What a track shows of its puzzles, as data: groups, sections of a page."""

from collections.abc import Sequence
from typing import NamedTuple


class PuzzleGroup(NamedTuple):
    """Puzzles that belong together, a chapter or a whole track; `name` is what commands call it."""

    name: str
    title: str
    idea: str
    slugs: tuple[str, ...]
    folder: str = ""
    """The folder of a teacher's chapter, which may have chapters for several tracks; by its name all are found."""


class Section(NamedTuple):
    """A part of a puzzle's page: lines to show as they are, each with its meaning, which may be empty."""

    title: str
    lines: Sequence[tuple[str, str]]


class OptionError(Exception):
    """A command's option that a track does not support. The text says what to do instead."""
