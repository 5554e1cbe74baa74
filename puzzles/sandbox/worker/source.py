"""Parses a player's file: the definitions in it, and the code to run. Nothing of it is executed here."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import sha256
from types import CodeType
from typing import Any

from puzzles.failure import Failure, UnreadableError, of_source

from .notebook_cells import Cell, is_notebook, read_cells, with_plain_newlines, without_magics

DEFINITION = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

GAME_PACKAGES = ("lib", "lib.engine", "lib.layout")
"""Packages whose names belong to the game: a star import of them brings no solution."""


class SubmissionCode:
    """A submission, parsed and compiled."""

    def __init__(self, name: str, text: str, slugs: Iterable[str]) -> None:
        """`slugs` are puzzles that may be asked for."""
        self.name = name
        self.cells: list[Cell] = []
        text = with_plain_newlines(text)
        self.code: CodeType | None = None
        self.problem: Failure | None = None
        """Reason why nothing of the file can be used."""
        self.broken: dict[str, Failure] = {}
        """By puzzle, the error in the cell that seems to define it."""
        self.lines: dict[str, int] = {}
        """The names that the file binds, with their last lines; '*' for a star import."""
        self.digests: dict[str, str] = {}
        """By puzzle, the digest of its definition: by it the grader recognizes an unchanged starter."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.cells = read_cells(name, text)
                body = self._notebook(slugs) if is_notebook(name, text) else ast.parse(text, name).body
                tree = ast.Module(body, [])
                self.code = compile(tree, name, "exec", dont_inherit=True)
            for bound, line in _bound_by(body):
                self.lines[bound] = max(line, self.lines.get(bound, 0))
            definitions = {n.name: n for n in body if isinstance(n, DEFINITION)}
            self.digests = {slug: digest(definitions[slug]) for slug in slugs if slug in definitions}
        except (SyntaxError, ValueError, RecursionError, MemoryError, UnreadableError) as why:
            self.problem = of_source(why)

    def survey(self) -> dict[str, Any]:
        """The findings, as plain data for the grader."""
        broken = {slug: list(failure) for slug, failure in self.broken.items()}
        problem = None if self.problem is None else list(self.problem)
        cells = self.cells if self.name.endswith(".ipynb") else []  # of a script, the grader has the lines
        return {"problem": problem, "broken": broken, "lines": self.lines, "digests": self.digests, "cells": cells}

    def _notebook(self, slugs: Iterable[str]) -> list[ast.stmt]:
        """Imports that are used, definitions, and plain constants. The last definition of a name wins."""
        kept: list[ast.stmt] = []
        for first, text, _ in self.cells:
            try:
                tree = self._tree(text)
            except (SyntaxError, ValueError, RecursionError, MemoryError) as why:
                failure = of_source(why)
                failure = failure._replace(line=failure.line + first - 1 if failure.line else first)
                self.broken.update((slug, failure) for slug in slugs if looks_defined(slug, text.splitlines()))
                continue
            kept += [ast.increment_lineno(node, first - 1) for node in tree.body if _is_definition(node)]
            for node in tree.body:
                self.broken.pop(getattr(node, "name", ""), None)  # defined again, and well
        return _without_idle_imports(kept)

    def _tree(self, text: str) -> ast.Module:
        """The syntax tree of a cell; of one that is not Python as it is, without IPython's lines."""
        flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        try:
            tree: ast.Module = compile(text, self.name, "exec", flags, dont_inherit=True)
        except SyntaxError:
            tree = compile(without_magics(text), self.name, "exec", flags, dont_inherit=True)
        return tree


def looks_defined(name: str, lines: Iterable[str]) -> bool:
    """True if a line looks as if it bound the name, in text that may not be valid Python."""
    starts = [f"{word}{name}{end}" for word in ("def ", "async def ", "class ") for end in "( :"]
    return any(line.startswith((*starts, f"{name} =")) for line in lines)


def digest(definition: ast.AST) -> str:
    """Digest of a definition's syntax tree, so that comments and layout do not count; empty if it is too deep."""
    try:
        return sha256(ast.dump(definition).encode("utf-8", "surrogatepass")).hexdigest()
    except RecursionError:
        return ""  # no starter is as deep as that


def _is_definition(node: ast.stmt) -> bool:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Import() | ast.ImportFrom():
            return True
        case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
            with suppress(ValueError, TypeError, RecursionError, MemoryError):
                ast.literal_eval(value)
                return True
    return False


def _without_idle_imports(body: list[ast.stmt]) -> list[ast.stmt]:
    """Drops imports that no definition uses: a notebook's drawing packages may be missing, or slow to load."""
    others = [node for node in body if not isinstance(node, ast.Import | ast.ImportFrom)]
    used = {n.id for node in others for n in ast.walk(node) if isinstance(n, ast.Name)}
    kept: list[ast.stmt] = []
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            lasting = isinstance(node, ast.ImportFrom) and node.module in ("__future__", *GAME_PACKAGES)
            node.names = [a for a in node.names if lasting or _bound(a) in used or a.name == "*"]
            if isinstance(node, ast.ImportFrom) and node.module in ("drawing", "chalk") and node.names[:1]:
                node.names = [a for a in node.names if a.name != "*"]  # pictures have no part in a schedule
            if not node.names:
                continue
        kept.append(node)
    return kept


def _bound(alias: ast.alias) -> str:
    return alias.asname or alias.name.partition(".")[0]


def _bound_by(body: Iterable[ast.AST]) -> Iterator[tuple[str, int]]:
    """The names that a module's statements bind, and on which lines; not those bound inside functions.

    A star import binds '*', which stands for unknown names; those of the game's packages bind no puzzle.
    """
    to_visit: list[ast.AST] = list(body)
    while to_visit:
        match node := to_visit.pop():
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
            case ast.Lambda():
                pass
            case ast.ImportFrom(module=module, names=[ast.alias(name="*")]) if module in GAME_PACKAGES:
                pass
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    yield _bound(alias), node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case _:
                to_visit += ast.iter_child_nodes(node)
