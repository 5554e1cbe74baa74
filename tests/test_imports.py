"""The import graph of all packages: arrows point one way, there are no circles, and `import lib` stays light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

ORDER = """
lib.errors
lib.ledger lib.ledger.algebra lib.ledger.costs lib.ledger.named_costs lib.ledger.setting lib.ledger.goal
lib.ledger.values lib.ledger.layers lib.ledger.attention lib.ledger.updates lib.ledger.collectives
lib.ledger.operations lib.ledger.trace lib.ledger.trace_json lib.ledger.lifetimes lib.ledger.meetings
lib.ledger.deadlocks lib.ledger.lanes lib.ledger.recomputation lib.ledger.memory lib.ledger.traffic lib.ledger.family
lib.ledger.notes lib.ledger.referee lib.ledger.waits lib.ledger.recorder lib.ledger.live_run lib.ledger.rank
lib.ledger.model lib.ledger.runner
lib
lib.pipelines.timetable lib.pipelines.orders lib.pipelines.player lib.pipelines.data_parallel lib.pipelines.codegen
lib.pipelines.rank_work lib.pipelines.recognition lib.pipelines.bounds lib.pipelines.torch_csv lib.pipelines.solver
lib.pipelines
lib.planning lib.profiles
lib.engine.words lib.engine.collectives lib.engine.flops lib.engine.metering lib.engine.suspended lib.engine.transport
lib.engine.inprocess lib.engine.engine lib.engine.devices lib.engine.processes lib.engine.mpi lib.engine.torch
lib.engine.process_devices lib.engine.launcher lib.engine lib.engine.replay.workload lib.engine.replay.rank
lib.engine.replay.comparison lib.engine.replay.pipelining lib.engine.replay
lib.layout.words lib.layout.layouts lib.layout.exchanges lib.layout.redistribution lib.layout.operators
lib.layout.graph lib.layout.training_step lib.layout.notation lib.layout.plans lib.layout.propagation
lib.layout.completion lib.layout.choices lib.layout.integer_program lib.layout.exact lib.layout.code
lib.layout.jax_primitives lib.layout.jax_functions lib.layout lib.layout.xla lib.layout.examples lib.layout.execution
lib.layout.spmd
drawing.palette drawing.pen drawing.picture drawing.scene drawing.glyphs drawing.run_text drawing.timeline
drawing.plans drawing.predicted_vs_measured drawing.values drawing.layout_tensor drawing.layout_graph
drawing.layout_text drawing.html drawing.files drawing
puzzles.search_path puzzles.version puzzles.address puzzles.text_lines puzzles.failure puzzles.catalog puzzles.content
puzzles.sandbox puzzles.tracks puzzles.custom puzzles.judge puzzles.screens puzzles.teaching puzzles.player puzzles
puzzles.page puzzles.cli puzzles.__main__ puzzles.package.training_puzzles
""".split()
"""Rooms: a module, or a package with all that is below it. Each imports only from itself and from rooms before it."""

LAZY = {
    ("lib.layout.redistribution", "lib.layout.execution"): "only a redistribution that is executed needs the engine",
    ("lib.layout.plans", "lib.layout.execution"): "only a plan that is executed needs the engine",
    ("puzzles", "puzzles.player.play"): "`from puzzles import play` loads it when it is asked for",
    ("puzzles", "puzzles.player.profile"): "`from puzzles import profile` loads it when it is asked for",
}
"""Arrows that point back, inside functions only, each with its reason."""


Import = ast.Import | ast.ImportFrom


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
    body, every = syntax(name)
    for node in every:
        for target in targets(name, node):
            yield target, node in body


@cache
def syntax(name: str) -> tuple[list[ast.stmt], list[Import]]:
    """The statements of a module, and its imports, wherever they are."""
    tree = ast.parse(modules()[name].read_text(encoding="utf-8"))
    return tree.body, [node for node in ast.walk(tree) if isinstance(node, Import)]


def targets(name: str, node: Import) -> Iterator[str]:
    """What an import in a module imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    package = name if modules()[name].name == "__init__.py" else name.rpartition(".")[0]
    above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
    base = ".".join([*above, *([node.module] if node.module else [])])
    for alias in node.names:
        inner = f"{base}.{alias.name}"
        yield inner if inner in modules() else base


LATE = {
    ("puzzles", "puzzles.player.*"): "`from puzzles import play` and `profile` load each name when it is asked for",
    (
        "lib.layout",
        "lib.layout.*",
    ): "the package loads its planners, which a graded file is refused, when asked for them",
    ("lib.planning", "lib.planning.*"): "the package loads its search when it is asked for it",
    ("puzzles.cli.*", "*"): "a command loads what it needs when it is called, so that others and --help start without",
    ("puzzles.*", "drawing*"): "nothing is drawn in most verdicts and lists, and chalk is slow to load",
    ("puzzles.*", "puzzles.screens.profile_pictures"): "as above: it draws",
}
"""Groups of late imports that have one reason: who imports, and what. Any other has its reason as a comment."""


def late_imports(name: str) -> Iterator[tuple[str, bool]]:
    """What a module of ours imports elsewhere than at its top; True if a comment has the reason: at this import, on the
    line above it, or at an import right above. Imports for type checkers alone never happen."""
    body, every = syntax(name)
    typed = {node for block in body if _is_for_types(block) for node in ast.walk(block)}
    lines = modules()[name].read_text(encoding="utf-8").splitlines()
    last, explained = -2, False
    for node in sorted({*every} - {*body} - typed, key=lambda node: node.lineno):
        between = "".join(lines[last : node.lineno - 1])
        explained &= not between.strip()
        last = node.end_lineno or node.lineno
        explained |= any(re.search("# (?!noqa|type:)", line) for line in lines[node.lineno - 2 : last])
        for target in targets(name, node):
            if target in modules():
                yield target, explained


def _is_for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def loaded_with(name: str) -> set[str]:
    """The modules of ours that importing one loads: what they import at their top, and their packages."""
    loaded: set[str] = set()
    waiting = [name]
    while waiting:
        found = waiting.pop()
        if found in modules() and found not in loaded:
            loaded.add(found)
            waiting += [found.rpartition(".")[0], *(target for target, at_load in imports(found) if at_load)]
    return loaded


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


def test_a_late_import_has_its_reason_in_a_comment_or_is_of_a_group_with_one() -> None:
    unused = {*LATE}
    for name in modules():
        for target, explained in late_imports(name):
            groups = {(who, what) for who, what in LATE if fnmatch(name, who) and fnmatch(target, what)}
            unused -= groups
            assert groups or explained, f"{name} imports {target} late, without a reason"
    assert unused == set()


def test_no_late_import_is_of_a_module_that_is_loaded_anyway() -> None:
    for name in modules():
        assert {target for target, _ in late_imports(name)} & loaded_with(name) == set(), name


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
        assert outside <= {"lib"}, name


def test_lib_imports_nothing_of_the_packages_that_are_built_on_it() -> None:
    for name in modules():
        if name.startswith("lib"):
            assert not [target for target, _ in imports(name) if target.startswith(("drawing", "puzzles"))], name


@pytest.mark.parametrize(
    ("code", "drawn"),
    [
        ("from lib import Weight", False),
        ("from lib import Weight; import drawing", True),
        ("from lib import Weight; from puzzles import play", False),
        ("import IPython; from lib import Weight; from puzzles import play", True),
    ],
)
@pytest.mark.slow
def test_a_value_is_a_picture_once_drawing_is_imported_which_a_notebook_that_plays_does(code: str, drawn: bool) -> None:
    shows = "'<svg' in getattr(Weight(0, 2, 0), '_repr_html_', str)()"
    assert str(drawn) in loaded_by(f"{code}; print({shows})")


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
            "import puzzles.cli.pipelines, puzzles.cli.layout",
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
