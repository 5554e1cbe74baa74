"""A folder is a capability that can be absent: without it the core path gives the same verdicts and screens.

Each of nine is removed from a copy of the game, with at most four lines elsewhere. What is left of a capability are
modules that only it uses, such as its command, which then says what the installation lacks.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from puzzles.catalog.path import CORE
from puzzles.tracks import TRACKS
from tests.support import core_path
from tests.support.profiles import TRACES
from tests.test_imports import ROOT, imports, modules


class Capability(NamedTuple):
    """`removed`: its files and folders. `lines` to remove elsewhere, by their file. `users`: modules that only it uses,
    and that import it at their top. `asked`: commands that use it, with their exit code without it, and the module that
    they say is missing."""

    removed: tuple[str, ...]
    lines: Mapping[str, tuple[str, ...]] = {}
    users: tuple[str, ...] = ()
    asked: Mapping[str, tuple[int, str]] = {}


LAYOUT = "lib/layout/__init__.py"

CAPABILITIES = {
    "planning": Capability(
        (
            "lib/planning",
            "puzzles/catalog/plan.py",
            "puzzles/content/plan",
            "puzzles/tracks/plan",
            "solutions/plan",
        ),
        {"puzzles/tracks/__init__.py": ("from .plan import Plans", "register(Plans())")},
        users=("puzzles.screens.plans",),
        asked={"plan --list": (2, "lib.planning")},
    ),
    "profiles": Capability(
        ("lib/profiles",),
        users=("puzzles.player.profile", "puzzles.screens.profiles", "puzzles.screens.profile_pictures"),
        asked={f"profile {TRACES / '1f1b'}": (2, "lib.profiles")},
    ),
    "solver": Capability(
        ("lib/pipelines/solver",),
        asked={
            "solve --ranks 4 --microbatches 8": (2, "lib.pipelines.solver"),
            f"profile {TRACES / '1f1b'}": (0, "lib.pipelines.solver"),
        },
    ),
    "jax": Capability(
        ("lib/layout/jax_functions.py", "lib/layout/jax_primitives.py"),
        {
            LAYOUT: (
                "    from lib.layout.jax_functions import ImportedGraph, from_jax",
                '    ".jax_functions": "ImportedGraph from_jax",',
                '    "ImportedGraph",',
                '    "from_jax",',
            )
        },
        users=("lib.layout.xla",),
        asked={"layout model.py:step --mesh dp=2": (2, "lib.layout.jax_primitives")},
    ),
    "code": Capability(
        ("lib/layout/code.py",),
        {LAYOUT: ("    from lib.layout.code import code_of", '    ".code": "code_of",', '    "code_of",')},
    ),
    "torch": Capability(("lib/engine/torch.py",)),
    "mpi": Capability(("lib/engine/mpi.py",)),
    "teaching": Capability(
        ("puzzles/teaching",),
        users=("puzzles.cli.check",),
        asked=dict.fromkeys(
            ("class .", "new mine", "check .", f"grade {core_path.GPIPE} -o page.html"), (2, "puzzles.teaching")
        ),
    ),
    "page": Capability(("puzzles/page",), asked={f"share {core_path.GPIPE} gpipe": (2, "puzzles.page")}),
}

MOST_LINES = 4


def is_removed(name: str, capability: Capability) -> bool:
    path = modules()[name].relative_to(ROOT)
    return any(path.is_relative_to(place) for place in capability.removed)


@pytest.mark.parametrize("capability", CAPABILITIES.values(), ids=CAPABILITIES)
def test_a_capability_is_imported_at_the_top_by_its_own_users_only(capability: Capability) -> None:
    missing = [place for place in capability.removed if not (ROOT / place).exists()]
    assert missing == []
    users = {
        name
        for name, path in modules().items()
        for target, at_load in imports(name)
        if at_load and target in modules() and is_removed(target, capability) and not is_removed(name, capability)
        if not set(path.read_text(encoding="utf-8").splitlines()) & set(_lines_in(capability, path))
    }
    assert users == {*capability.users}
    assert sum(map(len, capability.lines.values())) <= MOST_LINES


def _lines_in(capability: Capability, path: Path) -> tuple[str, ...]:
    return capability.lines.get(path.relative_to(ROOT).as_posix(), ())


def without(capability: Capability, clone: Path) -> None:
    """Copies the game into a folder, without a capability."""
    for name in ("lib", "drawing", "puzzles", "solutions"):
        shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
    for place in capability.removed:
        path = clone / place
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    for name, removed in capability.lines.items():
        lines = (clone / name).read_text(encoding="utf-8").splitlines()
        for line in removed:
            lines.remove(line)
        (clone / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


Told = Mapping[str, Any]


def told_without(capability: Capability, folder: Path) -> Told:
    """What the program of the core path says of a copy of the game without a capability. A player works in an empty
    folder."""
    clone, work = folder / "clone", folder / "work"
    work.mkdir()
    without(capability, clone)
    program = Path(core_path.__file__).read_text(encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(clone)}
    shell = subprocess.run(
        [sys.executable, "-c", program, *capability.asked],
        cwd=work, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert shell.returncode == 0, shell.stderr
    told: Told = json.loads(shell.stdout)
    assert [Path(file).parents[1] for file in told["modules"]] == [clone, clone]
    return told


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Told:
    return told_without(Capability(()), tmp_path_factory.mktemp("whole"))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", CAPABILITIES)
def test_the_core_path_works_without_a_capability(name: str, whole: Told, tmp_path: Path) -> None:
    capability = CAPABILITIES[name]
    told = told_without(capability, tmp_path)
    gone = {slug for slug in TRACKS["plan"].slugs if name == "planning"}
    assert [*told["verdicts"]] == [slug for slug in CORE if slug not in gone]
    assert told["verdicts"] == {slug: verdict for slug, verdict in whole["verdicts"].items() if slug not in gone}
    assert {status for status, *_ in told["verdicts"].values()} == {"passed"}
    assert {code for code, _ in told["screens"].values()} == {0}
    others = {command for command, screen in told["screens"].items() if screen != whole["screens"][command]}
    assert others == ({"list", "path", "status", "next", "show gpipe"} if gone else set())  # they count the path
    for (code, missing), (exit_code, output) in zip(capability.asked.values(), told["others"], strict=True):
        assert exit_code == code, output
        assert f"has no {missing}" in output
