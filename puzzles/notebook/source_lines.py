"""Where in the player's code something happened: a file or cell, a line, and the lines around it."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable, Iterator
from textwrap import dedent
from types import CodeType, TracebackType
from typing import Any, NamedTuple

AROUND = 2
"""Lines shown before and after."""


class Place(NamedTuple):
    """Line `line` of `file`, which is a cell or a file on disk; 0 if nobody knows."""

    file: str
    line: int

    def excerpt(self) -> list[tuple[int, str]]:
        """The line with its neighbours, numbered, without the indentation that they share."""
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


NOWHERE = Place("", 0)


def place_of(error: BaseException, function: Callable[..., Any]) -> Place:
    """The innermost line of the player's namespace that an exception came through, else what it says itself."""
    names = getattr(inspect.unwrap(function), "__globals__", None)
    at = NOWHERE
    for traceback in _tracebacks(error):
        if traceback.tb_frame.f_globals is names:
            at = Place(traceback.tb_frame.f_code.co_filename, traceback.tb_lineno)
    return at if at.line else Place(file_of(function), getattr(error, "line", 0))


def file_of(function: Callable[..., Any]) -> str:
    """The file or cell in which a function is defined; empty for what is not defined in Python."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return code.co_filename if isinstance(code, CodeType) else ""


def _tracebacks(error: BaseException) -> Iterator[TracebackType]:
    """Of an error and, if the player's code is not in it, of what it was made from; outermost first."""
    for source in (error.__context__, error):
        traceback = source.__traceback__ if source is not None else None
        while traceback is not None:
            yield traceback
            traceback = traceback.tb_next
