"""Writes the files that a player starts from, and recognizes a starter that is still as it was."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Sequence
from functools import cache
from os.path import basename
from textwrap import wrap

from puzzles.catalog.puzzle import Puzzle
from puzzles.catalog.text_lines import text_lines
from puzzles.failure import UNPARSABLE
from puzzles.sandbox.worker.sketch import Sketch, called_name, sketch
from puzzles.tracks import TRACKS, track_of

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

`puzzles show {only or "SLUG"}` shows the puzzle, `puzzles hint {only or "SLUG"}` gives a hint.
"""

{imports}'''
    return "\n\n".join([head, *(_comment(puzzle) + puzzle.starter for puzzle in puzzles)])


def is_unchanged_starter(puzzle: Puzzle, found: Sketch) -> bool:
    """True if a definition is still the puzzle's starter, or another starter for the same puzzle: it has a placeholder,
    and calls only what starters call."""
    return found.digest in _starter_digests(puzzle) or (
        found.todo is not None
        and _called_in_starters(track_of(puzzle.slug).name, track_of(puzzle.slug).slugs).issuperset(found.todo)
    )


@cache
def _tree(starter: str) -> ast.Module:
    """A starter as Python reads it; empty if it is not Python, which `puzzles check` tells the teacher."""
    try:
        return ast.parse(starter)
    except UNPARSABLE:
        return ast.Module([], [])


def _starter_digests(puzzle: Puzzle) -> set[str]:
    tree = _tree(puzzle.starter)
    return {sketch(node).digest for node in tree.body if getattr(node, "name", "") == puzzle.slug}


@cache
def _called_in_starters(track: str, slugs: tuple[str, ...]) -> frozenset[str]:
    """The names that the starters of a track call, and those of Python itself."""
    starters = (TRACKS[track].puzzle(slug).starter for slug in slugs)
    calls = (node for starter in starters for node in ast.walk(_tree(starter)) if isinstance(node, ast.Call))
    return frozenset({*map(called_name, calls), *dir(builtins)})


def _comment(puzzle: Puzzle) -> str:
    track = track_of(puzzle.slug)
    lines = [track.heading(puzzle), *wrap(f"{track.limits(puzzle)}.", WIDTH), ""]
    lines += [*text_lines(puzzle.statement, WIDTH), ""]
    if table := track.setting_lines(puzzle):
        lines += [*table, ""]
    return "".join(f"# {line}".rstrip() + "\n" for line in lines[:-1])
