"""The reference solution of a puzzle, where it is installed, and the lines in which another differs from it."""

import ast
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path

from puzzles.failure import UNPARSABLE
from puzzles.sandbox.visible_files import INSTALL_ROOT

from . import SHIPPED, TRACKS, track_of

SOLUTIONS = INSTALL_ROOT / "solutions"


def reference_file(slug: str) -> Path | None:
    """The file with the reference; None for a teacher's puzzle, and where there are no solutions."""
    if slug not in SHIPPED:
        return None
    folder = solutions_of(track_of(slug).name)
    named = (path for path in sorted(folder.glob("*.py")) if _plain(path.stem) == _plain(slug))
    return next(named, None)


def solutions_of(track: str) -> Path:
    """The folder with the references of a track."""
    return SOLUTIONS / TRACKS[track].custom.solutions


def _plain(name: str) -> str:
    """A slug and the name of its file differ in underscores and case: FedAvg, fed_avg."""
    return name.replace("_", "").lower()


def differing_lines(mine: str, theirs: str, name: str) -> list[str] | None:
    """Where two sources define `name` differently, as a diff without context; None if one of them has no definition."""
    a, b = _definition(mine, name), _definition(theirs, name)
    return list(unified_diff(a, b, n=0, lineterm=""))[2:] if a and b else None


def as_lines(differences: list[str]) -> Iterator[str]:
    """The same as people read it, with an empty line between two places."""
    if not differences:
        yield "Both have the same lines."
        return
    yield "- yours, + reference"
    for number, line in enumerate(differences):
        if not line.startswith("@@"):
            yield f"{line[0]} {line[1:]}"
        elif number:
            yield ""


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
