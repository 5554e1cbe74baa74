"""What every stage is given and gives: plain data, and the failure if there is one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from puzzles.failure import Failure


class Unplayable(Exception):
    """Something under a puzzle's name that cannot be its solution."""


class Place(NamedTuple):
    """Where the definition stands: the name of the player's file, and the line."""

    file: str
    line: int
    again: Callable[[int], Any]
    """The definition in a module of its own, for which the file is loaded once more; each has a number."""


@dataclass(frozen=True)
class Told:
    """What a run sends back: plain data by name, which nobody trusts, and why it does not count, if so."""

    data: Mapping[str, Any] = field(default_factory=dict)
    failure: Failure | None = None
