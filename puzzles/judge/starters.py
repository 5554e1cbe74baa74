"""Writes files of starters, and recognizes a starter that is unchanged."""

import ast
import builtins
import re
from collections.abc import Sequence
from functools import cache
from os.path import basename
from pathlib import Path
from textwrap import wrap

from puzzles.catalog.puzzle import Puzzle
from puzzles.failure import UNPARSABLE, UnreadableError
from puzzles.sandbox.worker.reading import Sketch, called_name, sketch
from puzzles.text_lines import aligned_lines, text_lines
from puzzles.tracks import TRACKS, place, track_of
from puzzles.tracks.outcomes import capitalized

WIDTH = 100


def starter_file(puzzles: Sequence[Puzzle], path: str) -> str:
    """The Python source of a file with the starters of these puzzles; its docstring names the command to grade it."""
    only = puzzles[0].slug if len(puzzles) == 1 else ""
    # The name goes into a docstring, where quotes and backslashes would have a meaning.
    name = basename(path) if re.fullmatch(r"[\w.-]+", basename(path)) else "FILE"
    head = f'''\
"""My solutions of the Training Puzzles.

Write between the marked lines, then grade the file:

    puzzles grade {name}

`puzzles show {only or "SLUG"}` shows the puzzle, `puzzles hint {only or "SLUG"}` gives a hint.
"""

{_imports(puzzles)}'''
    return "\n\n".join([head, *(_comment(puzzle) + puzzle.starter for puzzle in puzzles)])


def _imports(puzzles: Sequence[Puzzle]) -> str:
    tracks = dict.fromkeys(track_of(puzzle.slug) for puzzle in puzzles)
    return "".join(track.words.starter_head([p for p in puzzles if track_of(p.slug) is track]) for track in tracks)


def add_starters(puzzles: Sequence[Puzzle], path: str, overwrite: bool = False) -> list[str]:
    """Adds starters to the end of a Python file, each below its statement, and returns their slugs.

    Puzzles that the file defines are left out, and nothing in it changes. With `overwrite`, or if the file does not
    exist, it is written anew.
    """
    if overwrite or not Path(path).exists():
        with open(path, "w" if overwrite else "x", encoding="utf-8") as file:
            file.write(starter_file(puzzles, path))
        return [puzzle.slug for puzzle in puzzles]
    text = _text_to_extend(path)
    begun = r"^(?:(?:async[ ]+)?def|class)[ ]+{0}\b|^{0}[ ]*[=:]"  # also where the file is not valid Python
    missing = [puzzle for puzzle in puzzles if not re.search(begun.format(puzzle.slug), text, re.MULTILINE)]
    if missing:
        lines = set(text.splitlines())
        head = [line for line in _imports(missing).splitlines() if line and line not in lines]
        pieces = ["\n".join(head) + "\n"] if head else []
        pieces += [_comment(puzzle) + puzzle.starter for puzzle in missing]
        with open(path, "a", encoding="utf-8", newline="\r\n" if "\r\n" in text else "\n") as file:
            file.write("\n" if text and not text.endswith("\n") else "")
            file.writelines(f"\n\n{piece}" for piece in pieces)
    return [puzzle.slug for puzzle in missing]


def _text_to_extend(path: str) -> str:
    if not path.endswith(".py"):
        raise UnreadableError(f"starters are added only to Python files; name a file that ends in .py, not {path}")
    with open(path, encoding="utf-8", newline="") as file:
        try:
            return file.read()
        except UnicodeDecodeError:
            raise UnreadableError(f"{path} is not in UTF-8; save it as UTF-8, then add the starter again") from None


def is_unchanged_starter(puzzle: Puzzle, found: Sketch) -> bool:
    """True if a definition is the puzzle's starter, or another one for the same puzzle: it has a placeholder and calls
    only names that starters call."""
    named = (node for node in _tree(puzzle.starter).body if getattr(node, "name", "") == puzzle.slug)
    if any(sketch(node).digest == found.digest for node in named):
        return True
    track = track_of(puzzle.slug)
    return found.todo is not None and _called_in_starters(track.name, track.slugs).issuperset(found.todo)


@cache
def _tree(starter: str) -> ast.Module:
    """A parsed starter; empty if it is not Python, which `puzzles check` reports to the teacher."""
    try:
        return ast.parse(starter)
    except UNPARSABLE:
        return ast.Module([], [])


@cache
def _called_in_starters(track: str, slugs: tuple[str, ...]) -> frozenset[str]:
    """The names that the starters of a track call, and Python's own names."""
    starters = (TRACKS[track].puzzle(slug).starter for slug in slugs)
    calls = (node for starter in starters for node in ast.walk(_tree(starter)) if isinstance(node, ast.Call))
    return frozenset({*map(called_name, calls), *dir(builtins)})


def _comment(puzzle: Puzzle) -> str:
    track = track_of(puzzle.slug)
    lines = [track.words.heading(puzzle), *wrap(f"{track.words.limits(puzzle)}.", WIDTH)]
    lines += [*wrap(capitalized(f"{place(puzzle.slug)}."), WIDTH)] if place(puzzle.slug) else []
    lines.append("")
    lines += [*text_lines(puzzle.statement, WIDTH), ""]
    if rows := track.words.setting_rows(puzzle):
        lines += [*aligned_lines(rows, WIDTH), ""]
    return "".join(f"# {line}".rstrip() + "\n" for line in lines[:-1])
