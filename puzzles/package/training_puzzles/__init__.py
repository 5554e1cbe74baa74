"""The one name that is installed: importing it makes `lib`, `drawing` and `puzzles` importable, ahead of all others.

import training_puzzles
from lib import Model

The whole game is in this package's folder; in a clone, or where that is installed with `pip install -e`, it is in the
clone. It extends `sys.path` instead of adding an import hook, because processes started by multiprocessing and MPI
inherit `sys.path`. Every module has one identity: `training_puzzles.lib` is the same object as `lib`.
"""

import sys
from os.path import dirname, isdir, join, realpath

TYPE_CHECKING = False  # modules that are not part of the interpreter are imported later; see `puzzles`
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

NAMES = ("lib", "drawing", "puzzles")
"""The packages that players import by these names, after `import training_puzzles`."""

FOLDERS = (*NAMES, "solutions", "notebooks")
"""Folders in ROOT, next to each other."""


def _root() -> str:
    """The folder with `lib`, `drawing` and `puzzles`: this one in a wheel, else the clone around `puzzles/package`."""
    here = dirname(realpath(__file__))
    return here if isdir(join(here, "lib")) else dirname(dirname(dirname(here)))


ROOT = _root()


class OtherModuleError(ImportError):
    """A module with one of our names that is not ours."""

    def _render_traceback_(self) -> list[str]:
        """The text that IPython shows: this sentence, without the machinery."""
        return [f"ImportError: {self}"]


def _require_ours(name: str) -> None:
    """Refuses to continue if another module of that name is already imported."""
    module = sys.modules.get(name)
    if module is None:
        return
    place = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
    if dirname(realpath(place)) != join(ROOT, name):
        raise OtherModuleError(
            f"another module called {name!r} is already imported ({place or 'made by hand'}); restart Python and "
            "write 'import training_puzzles' before anything that imports it",
            name=name,
        )


class _Alias:
    """Resolves `training_puzzles.lib` and its submodules to the existing modules, so that no class exists twice."""

    def find_spec(self, fullname: str, path: "Sequence[str] | None", target: "ModuleType | None" = None) -> "Any":
        package, _, name = fullname.partition(".")
        if package != __name__ or name.partition(".")[0] not in FOLDERS:
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(fullname, self)  # type: ignore[arg-type]  # a loader by what it does

    def create_module(self, spec: "ModuleSpec") -> "ModuleType":
        from importlib import import_module

        name = spec.name.partition(".")[2]
        _require_ours(name.partition(".")[0])
        module = import_module(name)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: "ModuleType") -> None:
        """Restores the spec of a module that has already run; the import system has just replaced it."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def __getattr__(name: str) -> "Any":
    """The packages as attributes, and `__version__`, loaded on first access."""
    from importlib import import_module

    if name in FOLDERS:
        return import_module(name)
    if name == "__version__":
        return import_module("puzzles.version").VERSION
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


for _name in NAMES:
    _require_ours(_name)
sys.path[:] = [ROOT, *(folder for folder in sys.path if folder != ROOT)]
sys.meta_path.insert(0, _Alias())
