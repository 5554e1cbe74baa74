"""Reads the fields of a TOML table strictly: every field has one type, and one that is unknown is an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

T = TypeVar("T")

MISSING: Any = object()

NO_LIMIT = 10**12
"""The target of a draft, which everything meets."""


class OwnPuzzleError(Exception):
    """A folder or file of puzzles that cannot be used; the text names the file, the field, and what to do."""


class Fields:
    """A table of a file. Each method takes one field out; `done` refuses those that nobody took."""

    def __init__(self, where: str, given: Mapping[str, Any]) -> None:
        """`where` names the file, and the table in it."""
        self.where = where
        self._given = dict(given)
        self._known: list[str] = []

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
                raise OwnPuzzleError(f"{self.where}: '{name}' is missing; it is {wanted}")
            return default
        content = self._given.pop(name)
        if not is_right(content):
            raise OwnPuzzleError(f"{self.where}: '{name}' is {wanted}; got {content!r:.80}")
        return content

    def text(self, name: str, default: Any = MISSING) -> str:
        return str(self.take(name, "a text", _is_text, default))

    def one_of(self, name: str, known: Any, default: Any = MISSING) -> str:
        content = self.text(name, default)
        if content not in known and content != default:
            near = get_close_matches(content, known, n=1)
            advice = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(known)}"
            raise OwnPuzzleError(f"{self.where}: there is no {name} '{content}'; {advice}")
        return content

    def number(self, name: str, default: Any = MISSING, least: int = 1) -> int:
        """A whole number."""
        return int(self.take(name, f"a whole number from {least}", lambda n: type(n) is int and n >= least, default))

    def decimal(self, name: str, default: Any = MISSING) -> float:
        """A number above 0."""
        return float(self.take(name, "a number above 0", lambda n: type(n) in (int, float) and n > 0, default))

    def flag(self, name: str) -> bool:
        """True or false; false by default."""
        return bool(self.take(name, "true or false", lambda given: type(given) is bool, False))

    def texts(self, name: str, known: Any = None) -> tuple[str, ...]:
        """A list of texts, all of which are known if it is said what is; empty by default."""
        given = self.take(name, "a list of texts", lambda row: isinstance(row, list) and all(map(_is_text, row)), [])
        for one in given:
            Fields(self.where, {name: one}).one_of(name, known or [one])
        return tuple(given)

    def table(self, name: str, default: Any = MISSING) -> Fields:
        """A table within this one."""
        return Fields(f"{self.where}, [{name}]", self.take(name, "a table", _is_table, default))

    def tables(self, name: str) -> list[Fields]:
        """A list of tables; empty by default."""
        rows = self.take(
            name, "a list of tables", lambda given: isinstance(given, list) and all(map(_is_table, given)), []
        )
        return [Fields(f"{self.where}, [[{name}]] {number}", row) for number, row in enumerate(rows, 1)]

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
            raise OwnPuzzleError(f"{self.where}: there is no field '{name}'; {advice}")


def _is_text(given: Any) -> bool:
    return isinstance(given, str)


def _is_table(given: Any) -> bool:
    return isinstance(given, dict)


def texts_of(fields: Fields) -> dict[str, Any]:
    """The texts that puzzles of every track have."""
    return {
        "title": fields.text("title"),
        "statement": fields.text("statement").strip() + "\n",
        "starter": fields.text("starter").strip() + "\n",
        "hints": fields.texts("hints"),
        "concept": fields.text("concept", "").strip(),
        "in_practice": fields.text("in_practice", "").strip(),
        "sources": fields.texts("sources"),
        "credit": fields.text("credit", ""),
        "praise": fields.text("praise", "No better solution is known."),
    }


def rules_of(fields: Fields, known: tuple[str, ...]) -> dict[str, Any]:
    """The calls that are allowed or forbidden."""
    rules = {name: fields.texts(name, known) for name in ("allowed", "forbidden")}
    if rules["allowed"] and rules["forbidden"]:
        raise OwnPuzzleError(f"{fields.where}: give either the calls that are allowed, or those that are forbidden")
    return rules
