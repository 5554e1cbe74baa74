"""Modules that a graded definition has to do without: what has the schedules or finds the splits of puzzles, and what
computes where no meter of a class counts."""

import os
import sys
from collections.abc import Callable
from typing import Any

import lib
from lib import PuzzleError

WITHHELD = "lib.schedules"
PLANNERS = ("lib.planning.memory", "lib.planning.plans", "lib.planning.split_search", "lib.planning.timing")
"""What measures and searches splits; graded plans are measured by the judge."""
PLANNING = {*"plan search".split()}
"""Its functions in `lib.planning`."""

FOLDER = os.path.realpath(os.path.join(os.path.dirname(lib.__file__), "schedules"))

REFUSAL = (
    f"a graded schedule cannot use {WITHHELD}, which has the schedules that puzzles ask for; write it yourself, and "
    "compare it with theirs in free play: puzzles run FILE NAME --size 4,8,4"
)

REFUSAL_OF_PLANNERS = (
    "a graded plan cannot use the planner, which finds the split that the puzzle asks for; return your own Split, and "
    "ask the planner by itself: puzzles plan --model llama-3-8b --gpus 16"
)


UNCOUNTED = frozenset(("ctypes", "_ctypes", "cffi", "_cffi_backend", "numba", "scipy", "torch", "jax"))
"""Modules whose products no meter of numpy counts."""


class WithheldError(PuzzleError):
    """A graded definition uses what it has to do without."""


def refusal_in_class(module: str | None) -> str:
    """Why the class of an engine puzzle cannot use a module; empty if it can."""
    name = f"{module}".partition(".")[0]
    if name not in UNCOUNTED:
        return ""
    return f"a graded class cannot use {name}, whose products no meter counts; compute with numpy"


def withhold(refusal: Callable[[str | None], str], folder: str = "") -> None:
    """Makes Python refuse, for the rest of this process and by an audit hook, to import modules for which `refusal`
    says why, and to read what lies in a folder."""
    for name in filter(refusal, list(sys.modules)):
        del sys.modules[name]

    def refuse(event: str, given: tuple[Any, ...]) -> None:
        if event == "import" and (why := refusal(given[0])):
            raise WithheldError(why)
        if folder and event == "open" and given and isinstance(given[0], str | bytes):
            path = os.path.realpath(os.fsdecode(given[0]))
            if path.startswith(folder + os.sep):
                raise WithheldError(REFUSAL)

    sys.addaudithook(refuse)


def refusal_of(module: str | None) -> str:
    """Why a graded definition cannot use a module; empty if it can."""
    if f"{module}.".startswith(tuple(f"{name}." for name in PLANNERS)):
        return REFUSAL_OF_PLANNERS
    return REFUSAL if f"{module}.".startswith(f"{WITHHELD}.") else ""


def withheld_use(definition: Any) -> str:
    """Why a definition cannot be graded: it is of a withheld module, or its code, or a function of the same notebook
    that it names, uses one. Empty if it does not.

    What a name stood for when other values were computed does not show: this keeps the rule, it is no protection.
    """
    seen: set[int] = set()
    found = [definition]
    while found:
        thing = found.pop()
        thing = getattr(thing, "__func__", getattr(thing, "func", thing))  # of a method, of a partial
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        names = _names_in(getattr(thing, "__code__", None))
        if why := next(filter(None, map(refusal_of, [_module_of(thing), *names])), ""):
            return why
        if {"lib", "schedules"} <= names:
            return REFUSAL
        if "lib.planning" in names and names & PLANNING:
            return REFUSAL_OF_PLANNERS
        places: dict[str, Any] = getattr(thing, "__globals__", {})
        if places is getattr(definition, "__globals__", None):
            found += [places[name] for name in names if name in places]
            found += [cell.cell_contents for cell in thing.__closure__ or () if _is_filled(cell)]
    return ""


def _module_of(thing: Any) -> str | None:
    if isinstance(thing, type(sys)):
        return thing.__name__
    return getattr(thing, "__module__", None) or type(thing).__module__


def _names_in(code: Any) -> set[str]:
    """The names and imports in some code and in what is nested in it."""
    if not hasattr(code, "co_names"):
        return set()
    return {*code.co_names}.union(*(_names_in(inner) for inner in code.co_consts))


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False
