"""A file in the current folder is never imported by a command, whatever module it is called after."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from shutil import copytree
from typing import NamedTuple

import pytest

from tests.support.mpi import mpiexec_or_skip

ROOT = Path(__file__).parents[2]
GRADE = ("grade", "class/basic.py", "--json", "--puzzle", "basic")
ALL = ("grade", "class", "--trust", "--json", "-o", "page.html", "--puzzle", "basic", "--puzzle", "FSDP")
SCRIPT = "import re\nimport sys\nfrom training_puzzles.__main__ import main\nif __name__ == '__main__':\n    main()\n"
"""What pip writes for the command `puzzles`."""

BY_SITE = {"sitecustomize", "usercustomize"}
"""Modules that Python itself looks for before it runs a program."""

SPAWN = """
import multiprocessing
of = multiprocessing.get_context
multiprocessing.get_context = lambda method: of("spawn")
"""
"""As `sitecustomize`, makes multiprocessing start processes as it does on macOS and Windows."""

RECORDED = """
import runpy, sys
module = sys.argv.pop(1)
names = set()
class Recorder:
    def find_spec(self, name, path=None, target=None):
        names.add(name.partition(".")[0])
sys.meta_path.insert(0, Recorder())
try:
    runpy.run_module(module, run_name="__main__", alter_sys=True)
finally:
    open("names", "w").write("\\n".join(names))
"""


class Entry(NamedTuple):
    """A way to start the command. In `path`, names stand for the clone, its `package`, and a folder with SPAWN."""

    words: tuple[str, ...]
    path: str = "{root}:{package}"
    safe: str = ""
    arguments: tuple[str, ...] = GRADE
    here: bool = False
    """True if the current folder is a clone's own."""


M = ("-m", "puzzles")
SLOW = {
    "in the clone": Entry(M, "", arguments=GRADE, here=True),
    "a class": Entry(M, arguments=ALL),
    "a class, in the clone": Entry(M, "", arguments=ALL, here=True),
    "-m training_puzzles": Entry(("-m", "training_puzzles")),
    "-m training_puzzles, empty path": Entry(("-m", "training_puzzles"), ":{root}:{package}"),
    "script": Entry(("bin/puzzles",)),
    "-P": Entry(("-P", *M)),
    "PYTHONSAFEPATH": Entry(M, safe="1"),
    "PYTHONSAFEPATH, relative path": Entry(M, "sub:.:{root}", safe="1"),
    "in the clone, relative path": Entry(("-m", "training_puzzles"), "puzzles/package", here=True),
    "spawned processes, in the clone": Entry(M, "{spawn}", arguments=ALL, here=True),
    "processes of MPI": Entry(M, arguments=("run", "class/basic.py", "basic", "--on", "mpi")),
    "a wheel is built": Entry(M, arguments=("gradescope", "--puzzle", "basic", "-o", "autograder.zip")),
    "-m puzzles.page": Entry(("-m", "puzzles.page"), arguments=("--help",)),
}
ENTRIES = {
    "-m puzzles": Entry(M),
    "script, relative path": Entry(("bin/puzzles",), "sub:{root}:{package}:."),
    **SLOW,
}


def ran(entry: Entry, folder: Path) -> subprocess.CompletedProcess[str]:
    clone = folder if entry.here else ROOT
    names = {"root": clone, "package": clone / "puzzles" / "package", "spawn": folder.parent / "spawn"}
    path = entry.path.format(**names).replace(":", os.pathsep)
    env = {**os.environ, "PYTHONPATH": path, "PYTHONSAFEPATH": entry.safe}
    command = [sys.executable, *entry.words, *entry.arguments]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def started_with(entry: Entry, folder: Path) -> set[str]:
    """What Python has imported before the first line of a program that is started in this way."""
    show = "import sys; print(*{name.partition('.')[0] for name in sys.modules})"
    (folder / "blank.py").write_text(show)
    (folder / "bin").mkdir()
    (folder / "bin" / "puzzles").write_text(f"import re\n{show}")
    is_script = entry.words[0].startswith("bin")
    words = entry.words if is_script else (*(word for word in entry.words if word == "-P"), "-m", "blank")
    found = ran(entry._replace(words=words, path=f"{entry.path}:{folder}"), folder).stdout
    (folder / "blank.py").unlink()
    (folder / "bin" / "puzzles").write_text(SCRIPT)
    return {*found.split()}


@cache
def imported(module: str, arguments: tuple[str, ...], folder: Path) -> set[str]:
    """Top-level names of all modules that the command looks for, those that are not found too."""
    assert ran(Entry(("-c", RECORDED, module), arguments=arguments), folder).returncode == 0
    found = {*(folder / "names").read_text().split()}
    assert {"__future__", "click", "typing"} <= found
    return {*found, *sys.stdlib_module_names, *packages_distributions()}


def plant(names: Iterable[str], folder: Path, log: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / f"{name}.py").write_text(
            f"with open({str(log)!r}, 'a') as log: print(__name__, file=log)\nraise ImportError\n"
        )


@pytest.fixture(scope="module")
def a_class(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A class that a schedule and an engine puzzle are graded for."""
    folder = tmp_path_factory.mktemp("a_class")
    (folder / "class").mkdir()
    for name in ("basic", "engine/fsdp"):
        (folder / "class" / Path(f"{name}.py").name).write_bytes((ROOT / "solutions" / f"{name}.py").read_bytes())
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.slow] * (one in SLOW)) for one in ENTRIES])
def test_no_module_comes_from_the_current_folder(name: str, a_class: Path, tmp_path: Path) -> None:
    if "mpi" in ENTRIES[name].arguments:
        mpiexec_or_skip()
    entry, folder, log = ENTRIES[name], tmp_path / "clone", tmp_path / "log"
    if entry.here:
        for part in ("lib", "drawing", "puzzles", "solutions"):
            copytree(ROOT / part, folder / part)
    copytree(a_class / "class", folder / "class")
    (tmp_path / "spawn").mkdir()
    (tmp_path / "spawn" / "sitecustomize.py").write_text(SPAWN)
    before = {*started_with(entry, folder), *BY_SITE, entry.words[-1].partition(".")[0]}
    ours = {"lib", "drawing", "puzzles", "solutions"} if entry.here else set()
    names = imported("puzzles.page" if "puzzles.page" in entry.words else "puzzles", entry.arguments, a_class)
    for place in (folder, folder / "sub"):
        plant((name for name in names - before - ours if name.isidentifier()), place, log)
    done = ran(entry, folder)
    assert not log.exists(), sorted({*log.read_text().split()})
    assert (done.returncode, done.stderr) == (0, "")
    if "--json" in entry.arguments:
        results = [row for file in json.loads(done.stdout)["files"] for row in file["results"]]
        assert [row["status"] for row in results].count("passed") == (2 if "FSDP" in entry.arguments else 1)
