"""The layout track keeps to its place: arrows point one way, numpy is all it needs, and `import lib` never loads it."""

from __future__ import annotations

import subprocess
import sys

from tests.test_imports import ROOT, imports

ORDER = (
    "errors whole device_matrix tensor_layout mesh pieces exchange steps refine named redistribution operators letters "
    "graph distributed candidates graph_plan on_engine breadth_first elimination fronts capped exact completion "
    "traced spmd examples __init__"
).split()
"""The modules of lib.layout: each imports only from those before it."""


def test_each_module_imports_only_from_its_left() -> None:
    assert sorted(ORDER) == sorted(path.stem for path in (ROOT / "lib" / "layout").glob("*.py"))
    for place, name in enumerate(ORDER):
        internal = {m[1:] for m in imports(ROOT / "lib" / "layout" / f"{name}.py") if m.startswith(".")}
        before = {".errors", *ORDER[:place]}  # those of lib, with two dots
        before |= {".engine"} if name in ("on_engine", "spmd") else set()  # which plans load when they run
        assert internal <= before, f"{name} imports {internal - before}"


def test_it_needs_nothing_but_numpy_and_the_errors_of_lib() -> None:
    for path in (ROOT / "lib" / "layout").glob("*.py"):
        outside = {name for name in imports(path) if not name.startswith(".")} - set(sys.stdlib_module_names)
        assert outside <= {"numpy"}, path.name


def test_importing_lib_loads_neither_the_layout_track_nor_numpy() -> None:
    code = "import sys, lib, puzzles.cli; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {"numpy", "lib.layout"} & set(loaded.stdout.split()) == set()


def test_files_are_small() -> None:
    for path in (ROOT / "lib" / "layout").glob("*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 300, path.name
