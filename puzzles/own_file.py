"""A file of the player's own for the other tracks: read once, run afresh as often as needed, in this process."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tokenize import detect_encoding
from types import CodeType, ModuleType
from typing import Any

from .inside.failure import Failure

MODULE = "submission"
"""What the file is called while it runs; not `__main__`, so that what stands under that name stays asleep."""


class Submission:
    """A Python file with functions named after puzzles. If it is none, `problem` tells what is wrong."""

    def __init__(self, path: Path, source: bytes) -> None:
        self.path = path
        self.lines: list[str] = []
        self.problem: Exception | None = None
        self.code: CodeType | None = None
        self.functions: dict[str, ast.AST] = {}
        """By name, the function definitions at the top level of the file; the last one of a name counts."""
        self.stuck: Failure | None = None
        """Set when the file took too long to load, so that this is not waited for once for every puzzle."""
        self._lines_of: dict[str, int] = {}
        try:
            text = self._decode(source)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(text, str(path))
                self.code = compile(tree, str(path), "exec", dont_inherit=True)
            for name, line in _bound_by(tree):
                self._lines_of[name] = max(line, self._lines_of.get(name, 0))
            for node in tree.body:
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    self.functions[node.name] = node
        except (SyntaxError, ValueError, RecursionError, MemoryError) as why:
            self.problem = why

    @classmethod
    def read(cls, path: Path) -> Submission:
        """The submission in a file; one that cannot be read has that as its problem."""
        try:
            return cls(path, path.read_bytes())
        except OSError as why:
            unreadable = cls(path, b"")
            unreadable.problem = why
            return unreadable

    def _decode(self, source: bytes) -> str:
        """The text, in the encoding that its first lines declare; UTF-8 otherwise, as in any Python file."""
        text = source.decode("utf-8-sig", errors="replace")
        try:
            encoding, _ = detect_encoding(BytesIO(source).readline)
            text = source.decode(encoding)
        finally:
            self.lines = re.split(r"\r\n|\r|\n", text)
        return text

    def defines(self, name: str) -> bool:
        """Whether the file says that it binds `name`; if it does not parse, whether a line looks like it."""
        if self.problem is not None:
            starts = [f"{word}{name}{end}" for word in ("def ", "async def ") for end in "( :"]
            return any(line.startswith((*starts, f"{name} =")) for line in self.lines)
        return name in self._lines_of

    def may_define(self, name: str) -> bool:
        """The same, or a star import might."""
        return self.defines(name) or "*" in self._lines_of

    def start_of(self, name: str) -> int:
        """The line on which `name` is defined, the last one if there are several; 0 if none."""
        return self._lines_of.get(name, 0)

    def line(self, number: int) -> str:
        """The text of a line, without its indentation; empty if there is no such line."""
        return self.lines[number - 1].strip() if 0 < number <= len(self.lines) else ""

    @contextmanager
    def environment(self) -> Iterator[dict[str, Any]]:
        """A fresh namespace to execute `code` in, with modules beside the file importable.

        Afterwards those modules are forgotten, so that no run sees what another has left in them.
        """
        folder = str(self.path.resolve().parent)
        module = ModuleType(MODULE)
        module.__file__ = str(self.path)
        modules, search_path = dict(sys.modules), list(sys.path)
        sys.modules[MODULE] = module
        sys.path.append(folder)
        try:
            yield module.__dict__
        finally:
            sys.path[:] = search_path
            for name, loaded in list(sys.modules.items()):
                if name == MODULE or (name not in modules and _is_file_in(folder, loaded)):
                    del sys.modules[name]


def _bound_by(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The names that a module's statements bind, and on which lines; not those bound inside functions.

    A star import binds '*': nobody can tell what.
    """
    to_visit: list[ast.AST] = list(tree.body)
    while to_visit:
        match node := to_visit.pop():
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name, node.lineno
            case ast.Lambda():
                pass
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    yield alias.asname or alias.name.partition(".")[0], node.lineno
            case ast.Name(ctx=ast.Store()):
                yield node.id, node.lineno
            case _:
                to_visit += ast.iter_child_nodes(node)


def _is_file_in(folder: str, module: object) -> bool:
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and Path(file).parent == Path(folder)
