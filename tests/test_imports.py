"""The import graph of all packages: arrows point one way, there are no circles, and `import lib` stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

ORDER = """
lib.errors lib.extras lib.masked_arrays lib.ledger lib.ledger.algebra lib.ledger.costs lib.ledger.named_costs
lib.ledger.setting lib.ledger.goal lib.ledger.values lib.ledger.layers lib.ledger.attention lib.ledger.updates
lib.ledger.collectives lib.ledger.operations lib.ledger.trace lib.ledger.trace_json lib.ledger.lifetimes
lib.ledger.meetings lib.ledger.deadlocks lib.ledger.lanes lib.ledger.recomputation lib.ledger.memory
lib.ledger.traffic lib.ledger.family lib.ledger.notes lib.ledger.referee lib.ledger.waits lib.ledger.recorder
lib.ledger.live_run lib.ledger.rank lib.ledger.model lib.ledger.runner lib lib.pipelines.timetable
lib.pipelines.orders lib.pipelines.player lib.pipelines.data_parallel lib.pipelines.codegen
lib.pipelines.schedule_names lib.pipelines.rank_work lib.pipelines.recognition lib.pipelines.bounds
lib.pipelines.torch_csv lib.pipelines.solver lib.pipelines lib.planning lib.profiles
lib.engine.words lib.engine.collectives lib.engine.flops lib.engine.metering lib.engine.suspended lib.engine.transport
lib.engine.inprocess lib.engine.engine lib.engine.devices lib.engine.processes lib.engine.mpi lib.engine.torch
lib.engine.process_devices lib.engine.launcher lib.engine
lib.engine.replay.workload lib.engine.replay.rank lib.engine.replay.comparison lib.engine.replay.pipelining
lib.engine.replay
lib.layout.words lib.layout.layouts lib.layout.exchanges lib.layout.redistribution lib.layout.operators lib.layout.graph
lib.layout.training_step lib.layout.notation lib.layout.plans lib.layout.propagation lib.layout.completion
lib.layout.choices lib.layout.integer_program lib.layout.exact lib.layout.code lib.layout.jax_primitives
lib.layout.jax_functions lib.layout lib.layout.xla lib.layout.examples lib.layout.execution lib.layout.spmd
drawing.palette drawing.pen drawing.picture drawing.scene drawing.glyphs drawing.run_text drawing.timeline drawing.plans
drawing.predicted_vs_measured drawing.values drawing.layout_tensor drawing.layout_graph drawing.layout_text drawing.html
drawing.files drawing
puzzles.search_path puzzles.version puzzles.address puzzles.text_lines puzzles.failure puzzles.catalog puzzles.content
puzzles.sandbox puzzles.tracks puzzles.custom puzzles.judge puzzles.screens puzzles.teaching puzzles.player puzzles
puzzles.page puzzles.cli puzzles.__main__ puzzles.package.training_puzzles
""".split()
"""Rooms: a module, or a package with all that is below it. Each imports only from itself and from rooms before it."""

LAZY = {
    ("lib.layout.redistribution", "lib.layout.execution"): "only a redistribution that is executed needs the engine",
    ("lib.layout.plans", "lib.layout.execution"): "only a plan that is executed needs the engine",
    ("lib.ledger.values", "drawing"): "a value shows itself as a picture in a notebook: _repr_html_ and draw()",
    ("puzzles", "puzzles.player.play"): "`from puzzles import play` loads it when it is asked for",
    ("puzzles", "puzzles.player.profile"): "`from puzzles import profile` loads it when it is asked for",
}
"""Arrows that point back, inside functions only, each with its reason."""


@cache
def modules() -> dict[str, Path]:
    """Every module of ours by its dotted name."""
    found = {}
    for package in ("lib", "drawing", "puzzles"):
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports(name: str) -> list[tuple[str, bool]]:
    """A module's imports, those in functions too: (imported module, True if that happens when the module is loaded)."""
    return [*_imports(name)]


def _imports(name: str) -> Iterator[tuple[str, bool]]:
    path = modules()[name]
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node in tree.body
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield inner if inner in modules() else base, node in tree.body


@cache
def ours(name: str) -> set[str]:
    """The modules of ours that a module imports, without the lazy exceptions."""
    found = set()
    for target, at_load in imports(name):
        if target in modules() and target != name:
            if (name, target) in LAZY:
                assert not at_load, f"{name} must import {target} inside a function"
            else:
                found.add(target)
    return found


@cache
def room(name: str) -> str:
    """The room of a module: the longest entry of ORDER that it lies in."""
    inside = [place for place in ORDER if name == place or name.startswith(f"{place}.")]
    return max(inside, key=len)


def test_order_names_rooms_that_exist() -> None:
    assert [place for place in ORDER if place not in modules()] == []
    assert len(ORDER) == len(set(ORDER))
    assert {room(name) for name in modules()} == set(ORDER)


def test_each_room_imports_only_from_its_left() -> None:
    place = {name: ORDER.index(room(name)) for name in modules()}
    arrows = [(name, target) for name in modules() for target in ours(name)]
    assert [f"{name} imports {target}" for name, target in arrows if place[target] > place[name]] == []


def test_the_lazy_exceptions_are_still_needed() -> None:
    for name, target in LAZY:
        assert target in {found for found, _ in imports(name)}


def test_there_are_no_import_circles() -> None:
    """Depth first over all arrows, those inside functions and of type checking included."""
    arrows = {name: ours(name) for name in modules()}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name not in done:
            for target in sorted(arrows[name]):
                visit(target, (*path, name))
            done.add(name)

    for name in arrows:
        visit(name, ())


def test_no_package_exports_a_name_that_hides_its_own_submodule() -> None:
    """After `import lib.x`, the attribute `x` of `lib` must be the module: a function of that name would hide it."""
    for name, path in modules().items():
        if path.name != "__init__.py":
            continue
        bound = set()
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom):
                bound |= {alias.asname or alias.name for alias in node.names}
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                bound.add(node.name)
        assert {f"{name}.{one}" for one in bound} & set(modules()) == set(), name


PROGRAM = "lib.planning.measure"
"""A program that runs PyTorch, which no module imports."""


def test_lib_imports_only_the_standard_library() -> None:
    heavy = ("lib.engine", "lib.layout", PROGRAM)
    light = [name for name in modules() if name.startswith("lib") and not name.startswith(heavy)]
    assert not any(target == PROGRAM for name in modules() for target, _ in imports(name))
    for name in light:
        outside = {target.partition(".")[0] for target, _ in imports(name)} - set(sys.stdlib_module_names)
        assert outside <= {"lib", "drawing"}, name


def test_layouts_need_nothing_but_numpy() -> None:
    for name in modules():
        if name.startswith("lib.layout"):
            always = {target.partition(".")[0] for target, at_load in imports(name) if at_load}
            assert always - set(sys.stdlib_module_names) <= {"lib", "numpy"}, name
            later = {target.partition(".")[0] for target, at_load in imports(name) if not at_load}
            # two extras, each in one place: a function of jax is imported, and an integer program is solved
            extras = {"lib.layout.jax_primitives": {"jax"}, "lib.layout.integer_program": {"highspy"}}
            assert later - set(sys.stdlib_module_names) <= {"lib", "numpy"} | extras.get(name, set()), name


def loaded_by(code: str) -> set[str]:
    code = f"import sys; {code}; print(*sys.modules)"
    shell = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(shell.stdout.split())


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("code", "heavy"),
    [
        ("import lib", "numpy greenlet lib.engine lib.layout chalk IPython asyncio drawing puzzles click rich"),
        ("import puzzles", "asyncio lib puzzles.catalog click"),
        ("from puzzles import play", "IPython chalk jupytext nbformat click rich"),
        ("import puzzles.cli.main", "rich chalk asyncio numpy lib.layout"),
        (
            "from puzzles.cli.main import main; main(['plan', '--list'], standalone_mode=False)",
            "puzzles.custom puzzles.tracks puzzles.content drawing chalk numpy",
        ),
        (
            "import puzzles.cli.solve, puzzles.cli.profile, puzzles.cli.layout",
            "puzzles.custom puzzles.tracks drawing chalk numpy",
        ),
        ("import lib.layout", "lib.engine greenlet chalk"),
    ],
)
def test_importing_loads_nothing_heavy(code: str, heavy: str) -> None:
    assert loaded_by(code) & set(heavy.split()) == set()


def test_files_are_small_and_say_their_idea_first() -> None:
    for package in ("lib", "drawing", "puzzles", "solutions"):
        for path in (ROOT / package).rglob("*.py"):
            source = path.read_text(encoding="utf-8")
            assert source.startswith('"""'), f"{path} has no docstring"
            assert len(source.splitlines()) <= 1_000, f"{path} is too long for one idea"
