"""All solutions of a player as one Python file that `puzzles grade` takes, and the parts of such a file by puzzle."""

import ast
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from puzzles.sandbox.worker.notebook_filter import bound_names

HEAD = '''\
"""My solutions of the Training Puzzles.

    puzzles grade FILE
"""
'''


class ClashError(ValueError):
    """Two solutions need one name for different things; the text says which, and what to do."""


class FilePart(NamedTuple):
    """A statement at the top level of a file, with the comments before it."""

    text: str
    names: frozenset[str]
    kind: type[ast.AST]


def parts_of(text: str) -> Iterator[FilePart]:
    """The statements of a file, in order."""
    lines, done = text.splitlines(), 0
    for node in ast.parse(text).body:
        end = node.end_lineno or node.lineno
        if end <= done:
            continue  # the second of two statements on a line
        yield FilePart("\n".join(lines[done:end]).strip("\n"), frozenset(bound_names(node)), type(node))
        done = end


def joined(codes: Mapping[str, str]) -> str:
    """One file of the code for each puzzle. What several have in common is there once; code that is not Python is kept
    as a comment.
    """
    owner: dict[str, tuple[str, str]] = {}
    first, rest, seen = [], [], set[str]()
    for slug, code in codes.items():
        try:
            parts = list(parts_of(code))
        except (SyntaxError, ValueError) as why:
            rest.append(_as_comment(slug, code, why))
            continue
        for part in parts:
            if part.text in seen or (part.kind is ast.Expr and not part.names):
                continue
            seen.add(part.text)
            if part.kind in (ast.Import, ast.ImportFrom):
                first.append(part.text)
                continue
            for name in part.names:
                other, text = owner.setdefault(name, (slug, part.text))
                if other != slug and text != part.text:
                    raise ClashError(f"{other} and {slug} both define {name}, differently; rename it in one of them")
            rest.append(part.text)
    first.sort(key=lambda text: "__future__" not in text)
    return "\n\n\n".join([HEAD + "\n" + "\n".join(first), *rest]) + "\n"


def split(text: str, slugs: Collection[str]) -> dict[str, str]:
    """The code for each puzzle that a file defines: the file without the definitions of other puzzles."""
    parts = list(parts_of(text))
    found = [slug for slug in slugs if any(slug in part.names for part in parts)]
    if len(found) == 1:
        return {found[0]: text}
    others = {slug: frozenset(found) - {slug} for slug in found}
    return {slug: _code(part for part in parts if not part.names & others[slug]) for slug in found}


def _code(parts: Iterator[FilePart]) -> str:
    """Imports on lines that follow each other, definitions apart."""
    text, before = "", ""
    for part in parts:
        if part.kind is ast.Expr:
            continue
        together = part.kind in (ast.Import, ast.ImportFrom) and before != "definition"
        text += ("\n" if together else "\n\n\n") * bool(text) + part.text
        before = "import" if part.kind in (ast.Import, ast.ImportFrom) else "definition"
    return text + "\n"


def _as_comment(slug: str, code: str, why: Exception) -> str:
    lines = [f"{slug} is not valid Python yet ({why}):", *code.splitlines()]
    return "\n".join(f"# {line}".rstrip() for line in lines)
