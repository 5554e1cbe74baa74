"""Puzzles on classes in files: their trials are Python."""

from puzzles.catalog.content import reader_of
from puzzles.catalog.engine import EnginePuzzle
from puzzles.tracks import base


class Custom(base.Custom[EnginePuzzle]):
    puzzle_class = "EnginePuzzle"
    needs_trials = True
    solutions = "engine"
    read = staticmethod(reader_of("engine"))
