"""Writes the files that a player starts from, and recognizes a starter that is still as it was."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import cache
from os.path import basename
from textwrap import wrap

from puzzles.catalog.puzzle import Puzzle
from puzzles.sandbox.worker.source import digest
from puzzles.tracks import track_of

WIDTH = 100


def starter_file(puzzles: Sequence[Puzzle], path: str) -> str:
    """The Python source of a file with the starters of these puzzles; its docstring names the command to grade it."""
    only = puzzles[0].slug if len(puzzles) == 1 else ""
    # The name goes into a docstring, where quotes and backslashes would be more than a name.
    name = basename(path) if re.fullmatch(r"[\w.-]+", basename(path)) else "FILE"
    tracks = dict.fromkeys(track_of(puzzle.slug) for puzzle in puzzles)
    imports = "".join(track.starter_head([p for p in puzzles if track_of(p.slug) is track]) for track in tracks)
    head = f'''\
"""My solutions of the Training Puzzles.

Write between the marked lines, then see how it does:

    puzzles grade {name}

`puzzles show {only or "SLUG"}` tells the puzzle, `puzzles hint {only or "SLUG"}` gives a hint.
"""

{imports}'''
    return "\n\n".join([head, *(_comment(puzzle) + puzzle.starter for puzzle in puzzles)])


@cache
def starter_digest(source: str) -> str:
    """The digest of a starter: a definition that has it is still untouched."""
    return digest(ast.parse(source).body[0])


def untouched(puzzle: Puzzle, definition: ast.AST | None) -> bool:
    """True if a definition is still the puzzle's starter; comments and blank lines do not count."""
    return definition is not None and digest(definition) == starter_digest(puzzle.starter)


def _comment(puzzle: Puzzle) -> str:
    track = track_of(puzzle.slug)
    lines = [track.heading(puzzle), *wrap(f"{track.limits(puzzle)}.", WIDTH), ""]
    for paragraph in puzzle.statement.strip().split("\n\n"):
        lines += [*wrap(paragraph, WIDTH), ""]
    return "".join(f"# {line}".rstrip() + "\n" for line in lines[:-1])
