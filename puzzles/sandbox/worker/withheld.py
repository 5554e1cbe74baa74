"""Modules that a graded definition has to do without: what has the schedules, or finds the splits or layouts, of
puzzles, and what computes where no meter of a class counts."""

import os
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import lib
from lib import PuzzleError
from lib.pipelines import MODULES

REFUSAL = (
    "a graded schedule cannot use lib.pipelines, which has the schedules that puzzles ask for; write it yourself, and "
    "compare it with theirs in free play: puzzles run FILE NAME --size 4,8,4"
)
REFUSAL_OF_PLANNERS = (
    "a graded plan cannot use the planner, which finds the split that the puzzle asks for; return your own Split, and "
    "ask the planner by itself: puzzles plan --model llama-3-8b --gpus 16"
)
REFUSAL_OF_LAYOUTS = (
    "a graded layout cannot use plan or complete, which find the layout that the puzzle asks for; configure operators "
    "yourself, and plan the graph in a program of your own"
)

TEXTBOOKS = "codegen data_parallel orders player timetable".split()
WITHHELD = {
    **{f"lib.pipelines.{name}": REFUSAL for name in TEXTBOOKS},
    **{f"lib.planning.{name}": REFUSAL_OF_PLANNERS for name in "estimate plans split_search".split()},
    **{f"lib.layout.{name}": REFUSAL_OF_LAYOUTS for name in "choices completion exact integer_program".split()},
}
"""By module or package: why a graded definition cannot use it."""
NAMES = {
    "lib": ({"pipelines"}, REFUSAL),
    "lib.pipelines": ({*" ".join(MODULES[f".{module}"] for module in TEXTBOOKS).split()}, REFUSAL),
    "lib.planning": ({"plan", "search"}, REFUSAL_OF_PLANNERS),
    "lib.layout": ({"plan", "complete"}, REFUSAL_OF_LAYOUTS),
}
"""By package: the names that it takes from these modules, and why they cannot be used."""


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


def withhold(refusal: Callable[[str | None], str], modules: Mapping[str, str] = MappingProxyType({})) -> None:
    """Makes Python refuse, for the rest of this process and by an audit hook, to import modules for which `refusal`
    says why, and to read the files of `modules`, each with why: importlib and loaders only open files."""
    for name in filter(refusal, list(sys.modules)):
        del sys.modules[name]
    places = {os.path.realpath(os.path.join(*lib.__path__, os.pardir, *name.split("."))): name for name in modules}

    def refuse(event: str, given: tuple[Any, ...]) -> None:
        if event == "import" and (why := refusal(given[0])):
            raise WithheldError(why)
        if event == "open" and given and isinstance(given[0], str | bytes):
            path = os.fsdecode(given[0])
            source = os.path.realpath(path).replace(f"__pycache__{os.sep}", "")
            for place, name in places.items():
                # a relative path may begin at a folder that was opened before
                if source.startswith((f"{place}.", place + os.sep)) or _ends_like(path, place):
                    raise WithheldError(modules[name])

    sys.addaudithook(refuse)


def _ends_like(path: str, place: str) -> bool:
    """True for a relative path to a file with the name of a module's."""
    name = os.path.basename(place)
    return not os.path.isabs(path) and os.path.basename(path).startswith(f"{name}.") and path.endswith((".py", ".pyc"))


def refusal_of(module: str | None) -> str:
    """Why a graded definition cannot use a module; empty if it can."""
    return next((why for name, why in WITHHELD.items() if f"{module}.".startswith(f"{name}.")), "")


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
        places: dict[str, Any] = getattr(thing, "__globals__", {})
        packages = names | {_module_of(places[name]) for name in names if isinstance(places.get(name), type(sys))}
        for package, (taken, why) in NAMES.items():
            if package in packages and names & taken:
                return why
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
