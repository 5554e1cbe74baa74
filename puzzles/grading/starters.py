"""The files a player starts from, and how to tell that a player has not started yet."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import cache
from os.path import basename
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from puzzles.catalog.schedule import Puzzle

if TYPE_CHECKING:
    from puzzles.tracks.base import Track

WIDTH = 100


def starter_file(track: Track, puzzles: Sequence[Any], path: str) -> str:
    """The Python source of a file with the starters of these puzzles; it says how to grade it at `path`."""
    only = puzzles[0].slug if len(puzzles) == 1 else ""
    # The name goes into a docstring, where quotes and backslashes would be more than a name.
    name = basename(path) if re.fullmatch(r"[\w.-]+", basename(path)) else "FILE"
    head = f'''\
"""My solutions of the Training Puzzles.

Write between the marked lines, then see how it does:

    puzzles grade {name}

`puzzles show {only or "SLUG"}` tells the puzzle, `puzzles hint {only or "SLUG"}` gives a hint.
"""

{track.starter_head(puzzles)}'''
    return "\n\n".join([head, *(_comment(track, puzzle) + puzzle.starter for puzzle in puzzles)])


def untouched(puzzle: Puzzle, function: ast.AST | None) -> bool:
    """Whether a function is still the puzzle's starter; comments and blank lines do not count."""
    try:
        return function is not None and ast.dump(function) == _starter_dump(puzzle.starter)
    except RecursionError:
        return False  # no starter is as deep as that


def _comment(track: Track, puzzle: Any) -> str:
    lines = [track.heading(puzzle), *wrap(f"{track.limits(puzzle)}.", WIDTH), ""]
    for paragraph in puzzle.statement.strip().split("\n\n"):
        lines += [*wrap(paragraph, WIDTH), ""]
    return "".join(f"# {line}".rstrip() + "\n" for line in lines[:-1])


@cache
def _starter_dump(source: str) -> str:
    return ast.dump(ast.parse(source).body[0])
