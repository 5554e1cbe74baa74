"""Refusals: one exception with its place and the fix, and a subclass for each kind; sentences that keep their facts.

Below them are the two refusals that several rooms share: of an array with a mask, and of a package that is missing,
with the command that installs it. Every run imports this module, so only what is always loaded stands above.
"""

import os
import re
import sys
from collections.abc import Iterable, Mapping
from types import MappingProxyType, NoneType
from typing import Any, Self


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


# --- Arrays with a mask, which would lose it unnoticed as ordinary arrays ---


def is_masked(given: Any) -> bool:
    masked = sys.modules.get("numpy.ma")  # numpy loads it when it is first used
    return masked is not None and isinstance(given, masked.MaskedArray)


def refuse_masked(given: Any, place: str = "") -> None:
    """Refuses a masked array, also in nested dictionaries, lists and tuples."""
    if is_masked(given):
        raise RuleError(
            "this array is masked, and its mask would be lost; pass arr.filled(0), and the mask as another array if it "
            "is needed",
            place,
        )
    if isinstance(given, dict):
        given = given.values()
    elif not isinstance(given, list | tuple):
        return
    for item in given:
        refuse_masked(item, place)


# --- Optional packages: how to install one, from the clone, wheel or index that this installation came from ---

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
"""The clone, or the folder `training_puzzles` of an installed wheel."""

PACKAGE = "training-puzzles"
"""The name of the installed package."""


def install_command(extra: str) -> str:
    """The command that adds an extra of pyproject.toml, such as `mpi`, to this installation."""
    from shlex import quote  # here, because only a refusal needs it

    if os.path.isfile(os.path.join(ROOT, "pyproject.toml")):
        folder = "." if os.getcwd() == ROOT else ROOT
        return f"pip install -e {quote(f'{folder}[{extra}]')}"
    return f"pip install {quote(_requirement(extra))}"


def _requirement(extra: str) -> str:
    """What pip needs to install this package again with an extra, from `direct_url.json` (PEP 610).

    Without that file, the package came from an index, which therefore knows its name.
    """
    import json  # all here, because only a refusal needs them
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    try:
        origin = json.loads(distribution(PACKAGE).read_text("direct_url.json") or "null")
    except (PackageNotFoundError, ValueError):
        origin = None
    if not origin:
        return f"{PACKAGE}[{extra}]"
    url, vcs = str(origin["url"]), origin.get("vcs_info")
    if vcs:
        return f"{PACKAGE}[{extra}] @ {vcs['vcs']}+{url}@{vcs['commit_id']}"
    if url.startswith("file:"):
        return f"{unquote(urlsplit(url).path)}[{extra}]"
    return f"{PACKAGE}[{extra}] @ {url}"
