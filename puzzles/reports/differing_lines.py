"""The lines in which a solution differs from the reference; comments, docstrings and blank lines do not count."""

import ast
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import NamedTuple

from puzzles.failure import UNPARSABLE


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
