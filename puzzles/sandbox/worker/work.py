"""A definition as it is compared with other people's: without names and comments, as a whole and by line."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from hashlib import sha256

from .sketch import Bare

MAX_LINES, MAX_LINE = 400, 120
DIGEST = 16


def work(name: str, definitions: Mapping[str, ast.stmt]) -> list[str]:
    """The digest of a definition with those that it uses, then for each of its lines a digest and the line itself.
    Names that the player has chosen do not count; empty if the definition is too deep."""
    try:
        mine = [Bare().visit(deepcopy(definitions[one])) for one in _used(name, definitions)]
        chosen = _chosen(mine, definitions)
        whole = _digest("\n".join(_unnamed(node, chosen, {}) for node in mine))
        lines = [f"{_digest(_unnamed(line, chosen, {}))} {_head(line)}" for node in mine for line in _lines(node)]
    except (RecursionError, ValueError):
        return []
    return [whole, *lines[:MAX_LINES]]


def _used(name: str, definitions: Mapping[str, ast.stmt]) -> list[str]:
    """A definition and all others that it uses, in the order of their first use."""
    found = [name]
    for one in found:
        for node in ast.walk(definitions[one]):
            if isinstance(node, ast.Name) and node.id in definitions and node.id not in found:
                found.append(node.id)
    return found


def _chosen(mine: Iterable[ast.AST], definitions: Mapping[str, ast.stmt]) -> set[str]:
    """The names that the player has chosen: what is bound in the definitions, and other definitions."""
    found = set(definitions)
    for node in (node for one in mine for node in ast.walk(one)):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name) | ast.alias(asname=str(name)):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
    return found


def _lines(node: ast.AST) -> Iterator[ast.stmt]:
    return (one for one in ast.walk(node) if isinstance(one, ast.stmt) and one is not node)


def _head(node: ast.AST) -> str:
    return ast.unparse(node).partition("\n")[0][:MAX_LINE]


def _unnamed(node: ast.AST, chosen: set[str], numbers: dict[str, str]) -> str:
    """The source of a node with the chosen names numbered in the order in which they appear; of a statement with a
    body, in a line of another, its first line."""
    text = _Unnamed(chosen, numbers).visit(deepcopy(node))
    is_part = isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    return _head(text) if is_part else ast.unparse(text)


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST]


class _Unnamed(ast.NodeTransformer):
    """Numbers the chosen names."""

    def __init__(self, chosen: set[str], numbers: dict[str, str]) -> None:
        self._chosen = chosen
        self._numbers = numbers

    def _number(self, name: str) -> str:
        return self._numbers.setdefault(name, f"v{len(self._numbers)}") if name in self._chosen else name

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._number(node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self._number(node.arg)
        return node

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> ast.AST:
        node.name = self._number(node.name)
        return self.generic_visit(node)

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _definition
