"""The house is in order: arrows point one way, and `import lib` needs only the standard library."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import lib

ROOT = Path(lib.__file__).parent.parent

ORDER = (
    "errors costs algebra value values rules trace tape storage parcel deadlock waits dist retrace memory steady goal "
    "notes pause referee ledger notation hands model runner __init__"
).split()
"""The modules of lib: each imports only from those before it."""


def imports(path: Path) -> set[str]:
    """What a file imports when it is imported itself: relative modules as '.name'."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            dots = "." * node.level
            found |= {dots + node.module} if node.module else {dots + alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
    return found


def test_each_module_of_lib_imports_only_from_its_left() -> None:
    assert sorted(ORDER) == sorted(path.stem for path in (ROOT / "lib").glob("*.py"))
    for place, name in enumerate(ORDER):
        internal = {module[1:] for module in imports(ROOT / "lib" / f"{name}.py") if module.startswith(".")}
        assert internal <= set(ORDER[:place]), f"{name} imports {internal - set(ORDER[:place])}"


ENGINE = (
    "reference number call meter transport lines tasks inprocess alone flops counted watching symmetric tiers engine "
    "nothing streams device local world wire letter mpi mpirun mpiexec launch problem plan actor timeline replay "
    "__init__"
).split()
"""The modules of lib.engine, likewise. Of lib only the layout track imports the engine, when a plan runs."""


def test_each_module_of_the_engine_imports_only_from_its_left() -> None:
    assert sorted(ENGINE) == sorted(path.stem for path in (ROOT / "lib" / "engine").glob("*.py"))
    for place, name in enumerate(ENGINE):
        internal = {module[1:] for module in imports(ROOT / "lib" / "engine" / f"{name}.py") if module.startswith(".")}
        siblings = {module for module in internal if not module.startswith(".")}
        assert siblings <= set(ENGINE[:place]), f"{name} imports {siblings - set(ENGINE[:place])}"


def test_lib_imports_only_the_standard_library() -> None:
    for path in (ROOT / "lib").glob("*.py"):
        outside = {name for name in imports(path) if not name.startswith(".")} - set(sys.stdlib_module_names)
        assert outside == set(), path.name


def test_importing_lib_loads_nothing_heavy() -> None:
    code = "import sys, lib; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    heavy = {"numpy", "greenlet", "lib.engine", "chalk", "IPython", "asyncio", "drawing", "puzzles", "click", "rich"}
    assert heavy & set(loaded.stdout.split()) == set()


def test_importing_play_loads_neither_notebooks_nor_drawing() -> None:
    for code, heavy in (
        ("import puzzles", {"asyncio", "lib", "puzzles.catalog", "click"}),
        ("from puzzles import play", {"IPython", "chalk", "jupytext", "nbformat", "click", "rich"}),
    ):
        code = f"import sys; {code}; print(*sys.modules)"
        loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
        assert heavy & set(loaded.stdout.split()) == set()


def test_files_are_small_and_say_their_idea_first() -> None:
    for package in ("lib", "drawing", "puzzles", "solutions"):
        for path in (ROOT / package).rglob("*.py"):
            source = path.read_text(encoding="utf-8")
            assert source.startswith('"""'), f"{path} has no docstring"
            assert len(source.splitlines()) <= 400, f"{path} is too long for one idea"
