"""Steps of a worker that depend on the track, a stage each: prepare a request, run the definition, return data.

A stage is a module with these functions, or an object with these methods. Here are the types that all stages share: the
place of a definition, and its result as plain data or a failure.
"""

import inspect
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple

from lib import PuzzleError
from puzzles.failure import Failure, line_in, of_crash, of_refusal


def stage_of(name: str) -> Any:
    """The stage of this name, with all that it needs imported: a module, or an object of the class in 'module:Class'.

    Raises:
        ImportError: there is none.
    """
    module, _, inner = name.partition(":")
    stage = import_module(module)
    return getattr(stage, inner)() if inner else stage


class UnplayableError(Exception):
    """An object under a puzzle's name that cannot be its solution."""


class FailedError(Exception):
    """A run has ended; `failure` says why, in the words that the player reads."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.sentence)
        self.failure = failure


class DefinitionSite(NamedTuple):
    """Place of a definition: the name of the player's file, and the line."""

    file: str
    line: int

    def failure_of(self, error: BaseException) -> Failure:
        """What is wrong if running the definition raises an error: at the line that raises it, if that is known."""
        if isinstance(error, UnplayableError):
            return Failure("crash", str(error), self.line)
        if isinstance(error, PuzzleError):
            return of_refusal(error, line_in(error.__traceback__, self.file) or self.line)
        return of_crash(error, self.file, "; ".join(getattr(error, "__notes__", [])), self.line)


@dataclass(frozen=True)
class StageResult:
    """Message of a worker: plain data by name, which is not trusted, and the failure if there is one."""

    data: Mapping[str, Any] = field(default_factory=dict)
    failure: Failure | None = None


def forgotten_in(warned: Iterable[warnings.WarningMessage]) -> str:
    """Python's remark on a coroutine that was never awaited; empty if there is none."""
    return next((text for one in warned if (text := str(one.message)).endswith("was never awaited")), "")


def require_function(slug: str, definition: Any, argument: str, what: str) -> None:
    """Refuses anything but a function that can be called with one argument, which stands for `what`."""
    advice = f"not a function; write 'def {slug}({argument}):'"
    if isinstance(definition, type):
        raise UnplayableError(f"{slug} is a class, {advice}")
    if not callable(definition):
        raise UnplayableError(f"{slug} is of type {type(definition).__name__}, {advice}")
    try:
        inspect.signature(definition, follow_wrapped=False).bind(None)
    except TypeError:
        how = f"write 'def {slug}({argument}):'"
        raise UnplayableError(f"{slug} is called with one argument, the {what}; {how}") from None
    except ValueError:
        return  # written in C: only calling it will show


def require_plain(slug: str, definition: Any, argument: str, why: str) -> None:
    """Refuses what can wait."""
    if inspect.iscoroutinefunction(definition) or inspect.isgeneratorfunction(definition):
        raise UnplayableError(f"{slug} must be a plain function, {why}; write 'def {slug}({argument}):'")
