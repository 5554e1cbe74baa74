"""The reference solution of a puzzle, where it is installed, and the lines in which another differs from it."""

import ast
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

from puzzles.failure import UNPARSABLE
from puzzles.sandbox.visible_files import INSTALL_ROOT

from .registry import SHIPPED, track_of

SOLUTIONS = INSTALL_ROOT / "solutions"


def reference_file(slug: str) -> Path | None:
    """The file with the reference; None for a teacher's puzzle, and where there are no solutions."""
    if slug not in SHIPPED:
        return None
    track = track_of(slug).name
    folder = SOLUTIONS if track == "schedule" else SOLUTIONS / track
    named = (path for path in sorted(folder.glob("*.py")) if _plain(path.stem) == _plain(slug))
    return next(named, None)


def _plain(name: str) -> str:
    """A slug and the name of its file differ in underscores and case: FedAvg, fed_avg."""
    return name.replace("_", "").lower()


class DifferingLines(NamedTuple):
    """Lines of the player's in one place, and what the reference has there; one of them may be empty."""

    mine: tuple[str, ...]
    theirs: tuple[str, ...]


def differing_lines(mine: str, theirs: str, name: str) -> list[DifferingLines] | None:
    """Where two sources define `name` differently, in the order of the lines; None if one of them has no definition."""
    sources = [_definition(source, name) for source in (mine, theirs)]
    if not all(sources):
        return None
    a, b = sources
    found = SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    return [DifferingLines(tuple(a[i:j]), tuple(b[k:m])) for tag, i, j, k, m in found if tag != "equal"]


def as_lines(differences: list[DifferingLines]) -> Iterator[str]:
    """The same as lines: '-' before the player's, '+' before the reference's."""
    if not differences:
        yield "Both have the same lines."
        return
    yield "- yours, + reference"
    for number, (mine, theirs) in enumerate(differences):
        if number:
            yield ""
        yield from (f"- {line}" for line in mine)
        yield from (f"+ {line}" for line in theirs)


def _definition(source: str, name: str) -> list[str]:
    """The lines of the last definition of this name; empty if there is none."""
    try:
        nodes = ast.parse(source).body
    except UNPARSABLE:
        return []
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = [node for node in nodes if isinstance(node, kinds) and node.name == name]
    if not found:
        return []
    for node in ast.walk(found[-1]):
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(found[-1]).splitlines()
