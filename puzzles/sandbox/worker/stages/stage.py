"""Types that all stages share: the place of a definition, and its result as plain data or a failure; and a check."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from puzzles.failure import Failure


class UnplayableError(Exception):
    """An object under a puzzle's name that cannot be its solution."""


class DefinitionSite(NamedTuple):
    """Place of a definition: the name of the player's file, and the line."""

    file: str
    line: int


@dataclass(frozen=True)
class StageResult:
    """Message of a worker: plain data by name, which is not trusted, and the failure if there is one."""

    data: Mapping[str, Any] = field(default_factory=dict)
    failure: Failure | None = None


def require_function(slug: str, definition: Any, argument: str) -> None:
    """Refuses anything but a function."""
    advice = f"not a function; write 'def {slug}({argument}):'"
    if isinstance(definition, type):
        raise UnplayableError(f"{slug} is a class, {advice}")
    if not callable(definition):
        raise UnplayableError(f"{slug} is of type {type(definition).__name__}, {advice}")
