"""Finds places in a player's code: the file or cell, the line, the lines around it, and a definition's source."""

import ast
import inspect
import linecache
from collections.abc import Iterator
from textwrap import dedent
from types import CodeType, FunctionType, TracebackType
from typing import Any, NamedTuple

AROUND = 2
"""Lines shown before and after."""


class SourceLine(NamedTuple):
    """Line `line` of `file`, which is a cell or a file on disk; 0 if unknown."""

    file: str
    line: int

    def excerpt(self) -> list[tuple[int, str]]:
        """The line and the lines around it, numbered, without their common indentation."""
        lines = linecache.getlines(self.file)
        if not 0 < self.line <= len(lines):
            return []
        first, last = max(1, self.line - AROUND), min(len(lines), self.line + AROUND)
        while first < self.line and not lines[first - 1].strip():
            first += 1
        while last > self.line and not lines[last - 1].strip():
            last -= 1
        shown = dedent("".join(line.rstrip() + "\n" for line in lines[first - 1 : last]))
        return list(enumerate(shown.splitlines(), first))


NOWHERE = SourceLine("", 0)


def place_of(error: BaseException, definition: Any) -> SourceLine:
    """The innermost line of the player's code that an exception came through, else the line that it names."""
    names = getattr(_function_of(definition), "__globals__", None)
    at = NOWHERE
    for traceback in _tracebacks(error):
        if traceback.tb_frame.f_globals is names:
            at = SourceLine(traceback.tb_frame.f_code.co_filename, traceback.tb_lineno)
    return at if at.line else SourceLine(file_of(definition), getattr(error, "line", 0))


def file_of(definition: Any) -> str:
    """The file or cell of a function or class; empty for anything not defined in Python."""
    code = getattr(_function_of(definition), "__code__", None)
    return code.co_filename if isinstance(code, CodeType) else ""


def first_line_of(definition: Any) -> int:
    """The line on which a function or class is defined; 0 if unknown."""
    code = getattr(_function_of(definition), "__code__", None)
    if not isinstance(definition, type):
        return code.co_firstlineno if isinstance(code, CodeType) else 0
    tree = tree_of(definition)
    return getattr(tree, "lineno", 0)


def tree_of(definition: Any) -> ast.AST | None:
    """The syntax tree of a function or class, if its source can be found."""
    if isinstance(definition, type):
        return _tree_of_class(definition)
    try:
        return ast.parse(dedent(inspect.getsource(definition))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return None


def _tree_of_class(cls: type) -> ast.ClassDef | None:
    """Finds a class by the lines of its methods, because `inspect` cannot find a class in a notebook's cell."""
    code = getattr(_function_of(cls), "__code__", None)
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename))) if isinstance(code, CodeType) else None
    except (SyntaxError, ValueError, RecursionError):
        return None
    around = [
        node
        for node in (ast.walk(tree) if tree is not None else ())
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__
        if isinstance(code, CodeType) and node.lineno <= code.co_firstlineno <= (node.end_lineno or 0)
    ]
    return around[-1] if around else None


def _function_of(definition: Any) -> Any:
    """The function itself; for a class its first method, whose code and globals are in the same place."""
    if isinstance(definition, type):
        return next((value for value in vars(definition).values() if isinstance(value, FunctionType)), definition)
    return inspect.unwrap(definition)


def _tracebacks(error: BaseException) -> Iterator[TracebackType]:
    """The tracebacks of an error and, if the player's code is not in it, of its causes; outermost first."""
    for source in (error.__context__, error):
        traceback = source.__traceback__ if source is not None else None
        while traceback is not None:
            yield traceback
            traceback = traceback.tb_next
