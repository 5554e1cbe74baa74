"""Refusals: one exception with its place and the fix, and a subclass for each kind; sentences that keep their facts."""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType, NoneType
from typing import Self


class Sentence(str):
    """A sentence for a player, with the data that it was worded from: a reason, and facts by name."""

    reason = ""
    facts: dict[str, object]


class Sentences(dict[str, str]):
    """The sentences of a room by reason, each a template over its facts."""

    def __call__(self, reason: str, /, **facts: object) -> Sentence:
        sentence = Sentence(self[reason].format_map(facts))
        sentence.reason = reason
        sentence.facts = {name: _kept(fact) for name, fact in facts.items()}
        return sentence


def _kept(fact: object) -> object:
    """A fact as a sentence keeps it: what a refusal within it says, and of a value of the game the text."""
    if isinstance(fact, PuzzleError):
        return fact.problem
    return fact if isinstance(fact, str | int | float | tuple | list | dict | NoneType) else str(fact)


class PuzzleError(AssertionError):
    """A refusal. `problem` says what is wrong and what to do; `place` names the rank, the time and the call.

    An AssertionError, as in the original puzzles, so `except AssertionError` in old notebooks keeps working.
    """

    reason = "rule"

    def __init__(self, problem: str, place: str = "", line: int = 0) -> None:
        super().__init__(f"{place}: {problem}" if place else problem)
        self.problem = problem
        self.place = place
        self.line = line
        """Line in the player's file, 0 when unknown."""

    def at(self, place: str, line: int = 0) -> Self:
        """The same refusal with its place. A place that is already known is kept."""
        return self if self.place else type(self)(self.problem, place, line)

    def _render_traceback_(self) -> list[str]:
        """The text that IPython shows: the message and the player's lines, without the machinery between them."""
        from linecache import getline  # here, because it would double the time that importing lib takes

        shown = [f"{type(self).__name__}: {self}"]
        traceback = self.__traceback__
        while traceback is not None:
            frame, line = traceback.tb_frame, traceback.tb_lineno
            if not _is_machinery(frame.f_globals.get("__name__", "")):
                text = getline(frame.f_code.co_filename, line).strip()
                shown.append(f"    line {line}, in {frame.f_code.co_name}: {text}")
            traceback = traceback.tb_next
        return shown


def _is_machinery(module: str) -> bool:
    return module.partition(".")[0] in ("lib", "drawing", "puzzles", "asyncio", "IPython", "ipykernel")


class RuleError(PuzzleError):
    """An operation that the mathematics of training does not allow."""


class DeadlockError(PuzzleError):
    """Ranks wait for each other, and none can go on."""

    reason = "deadlock"


class MismatchError(PuzzleError):
    """Ranks met in one collective with different operations or layers."""

    reason = "mismatch"


class IncompleteError(PuzzleError):
    """The run ended, but some layer's updated weight does not exist."""

    reason = "incomplete"


class TraceError(PuzzleError):
    """A trace that cannot be read, or that contradicts itself."""


def meant(name: str, known: Iterable[str], other_names: Mapping[str, Iterable[str]] = MappingProxyType({})) -> str:
    """The known name that is nearest to another one, also by the names that other libraries use; empty if none is."""
    from difflib import get_close_matches  # here, because only a refusal needs it

    def plain(text: str) -> str:
        return re.sub("_|async$", "", text.lower())

    by_name = {plain(one): one for one in known}
    for one, others in other_names.items():
        by_name.update(dict.fromkeys(others, one))
    near = get_close_matches(plain(name), by_name, n=1, cutoff=0.75)
    return by_name[near[0]] if near else ""
