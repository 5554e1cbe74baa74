"""Reads the fields of a TOML table strictly: every field has one type, and one that is unknown is an error.

A message names the file, the line, the field and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

T = TypeVar("T")

MISSING: Any = object()

NO_LIMIT = 10**12
"""The target of a draft, which everything meets."""


class RefusedError(Exception):
    """A mistake of whoever typed a command or wrote a file; the text says what is wrong, and what to do."""


class OwnPuzzleError(RefusedError):
    """A folder or file of puzzles that cannot be used; the text names the file, the field, and what to do."""


Place = tuple[str | int, ...]
"""Where a field is in a file: the names of its tables and its own, with the number of the row in a list of tables."""


class Fields:
    """A table of a file. Each method takes one field out; `done` refuses those that nobody took."""

    def __init__(self, where: str, given: Mapping[str, Any], text: Callable[[], str] = str, place: Place = ()) -> None:
        """`where` names the file, and the table in it; `text` reads the file again, for the lines in messages,
        and `place` is where the table is in it."""
        self.where = where
        self._given = dict(given)
        self._known: list[str] = []
        self._text, self._place = text, place

    def refusal(self, problem: str, name: str = "") -> OwnPuzzleError:
        """The error that says what is wrong with a field, or with the whole table."""
        line = line_of(self._text(), (*self._place, *filter(None, [name])))
        return OwnPuzzleError(f"{self.where}{f', line {line}' if line else ''}: {problem}")

    def __contains__(self, name: str) -> bool:
        return name in self._given

    def take(self, name: str, wanted: str, is_right: Callable[[Any], bool], default: Any = MISSING) -> Any:
        """The content of a field.

        Raises:
            OwnPuzzleError: it is missing and has no default, or is not what is wanted.
        """
        self._known.append(name)
        if name not in self._given:
            if default is MISSING:
                raise self.refusal(f"'{name}' is missing; it is {wanted}", name)
            return default
        content = self._given.pop(name)
        if not is_right(content):
            raise self.refusal(f"'{name}' is {wanted}; got {content!r:.80}", name)
        return content

    def text(self, name: str, default: Any = MISSING) -> str:
        return str(self.take(name, "a text", _is_text, default))

    def one_of(self, name: str, known: Any, default: Any = MISSING) -> str:
        content = self.text(name, default)
        if content not in known and content != default:
            self.refuse_unknown(name, content, known)
        return content

    def refuse_unknown(self, name: str, content: str, known: Any) -> None:
        """Refuses a text that is none of those that are known, with the nearest of them."""
        near = get_close_matches(content, known, n=1)
        advice = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(known)}"
        raise self.refusal(f"there is no {name} '{content}'; {advice}", name)

    def number(self, name: str, default: Any = MISSING, least: int = 1) -> int:
        """A whole number."""
        return int(self.take(name, f"a whole number from {least}", lambda n: type(n) is int and n >= least, default))

    def decimal(self, name: str, default: Any = MISSING) -> float:
        """A number above 0."""
        return float(self.take(name, "a number above 0", lambda n: type(n) in (int, float) and n > 0, default))

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        return bool(self.take(name, "true or false", lambda given: type(given) is bool, default))

    def texts(self, name: str, known: Any = None) -> tuple[str, ...]:
        """A list of texts, all of which are known if it is said what is; empty by default."""
        given = self.take(name, "a list of texts", lambda row: isinstance(row, list) and all(map(_is_text, row)), [])
        for text in given:
            if known is not None and text not in known:
                self.refuse_unknown(name, text, known)
        return tuple(given)

    def table(self, name: str, default: Any = MISSING) -> Fields:
        """A table within this one."""
        given = self.take(name, "a table", _is_table, default)
        return Fields(f"{self.where}, [{name}]", given, self._text, (*self._place, name))

    def tables(self, name: str) -> list[Fields]:
        """A list of tables; empty by default."""
        rows = self.take(
            name, "a list of tables", lambda given: isinstance(given, list) and all(map(_is_table, given)), []
        )
        return [
            Fields(f"{self.where}, [[{name}]] {number}", row, self._text, (*self._place, name, number))
            for number, row in enumerate(rows, 1)
        ]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields that are left."""
        return tuple(self._given)

    def rest(self) -> dict[str, Any]:
        """All fields that are left, taken out."""
        rest, self._given = self._given, {}
        return rest

    def done(self) -> None:
        """Refuses fields that nobody knows.

        Raises:
            OwnPuzzleError: naming the first, and the nearest known one.
        """
        for name in self._given:
            near = get_close_matches(name, self._known, n=1)
            advice = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(self._known)}"
            raise self.refusal(f"there is no field '{name}'; {advice}", name)


HEADER = re.compile(r"\s*(\[{1,2})\s*([^\[\]]+?)\s*\]{1,2}\s*(?:#.*)?")
FIELD = re.compile(r"\s*([\w-]+|\"[^\"]*\")\s*=(.*)")
QUOTES = re.compile(r"\"\"\"|'''")


def line_of(text: str, place: Place) -> int:
    """The line of a field in a TOML file, or of the nearest table above it that stands in a line of its own; 0 if there
    is none. Only messages need it, so it may not know every way to write a table."""
    table: Place = ()
    counted: dict[str, int] = {}
    best, depth, row, quote = 0, 0, 0, ""
    last: Place = ()
    for number, line in enumerate(text.splitlines(), 1):
        if quote:
            quote = "" if quote in line else quote
            continue
        here: Place = ()
        if header := HEADER.fullmatch(line):
            table = tuple(part.strip().strip('"') for part in header[2].split("."))
            if header[1] == "[[":
                counted[header[2]] = counted.get(header[2], 0) + 1
                table = (*table, counted[header[2]])
            here = last = table
        elif field := FIELD.match(line):
            here, row = (*table, field[1].strip('"')), 0
            last, quote = here, _open_quote(field[2])
        elif line.lstrip().startswith("{"):  # a row of a list of tables
            row += 1
            here = (*last, row)
        if len(here) > depth and here == place[: len(here)]:
            best, depth = number, len(here)
    return best


def _open_quote(content: str) -> str:
    """The quotes of a text that begins in a line and ends in a later one."""
    marks = QUOTES.findall(content)
    return marks[0] if marks and marks.count(marks[0]) % 2 else ""


def _is_text(given: Any) -> bool:
    return isinstance(given, str)


def _is_table(given: Any) -> bool:
    return isinstance(given, dict)
