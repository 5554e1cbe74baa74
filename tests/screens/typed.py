"""Types a scene in an empty folder: no colours, no times, no paths, and nothing of this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import split
from shutil import copytree

import pytest

from puzzles.judge.progress import HOME, add_own_file
from puzzles.sandbox.client import Protection
from tests.screens.scenes import MINE, Scene
from tests.support.commands import ROOT, puzzles
from tests.support.in_process import without_server
from tests.support.mistakes import code_of

WIDTH = 100
FULL = Protection(landlock=6, seccomp=True, other_user=False)
"""Of a machine where nothing is missing."""

FOLDER = Path(__file__).parent

TOTALS = re.compile(r"(?<=\d of )\d+(?= stars)|(?<=  0 of )\d+$|(?<=^The other )\d+(?= puzzles)", re.MULTILINE)
"""What changes when a puzzle is added, so it is left out."""


def approved(scene: Scene) -> Path:
    """The file of a scene."""
    return FOLDER / f"{scene.name}.txt"


def screen_of(scene: Scene, folder: Path) -> str:
    """What is on the screen at the end: each command, what it prints, and its exit code unless that is 0."""
    work = folder / "work"
    work.mkdir()
    for name, content in scene.files.items():
        _put(work / name, content)
    with _a_player_in(work, folder / "home") as patch:
        if not scene.sandboxed:
            without_server(patch)
            patch.setattr("os.getuid", lambda: 1000)
        if MINE in scene.files:
            add_own_file(MINE)
        return "\n".join(_typed(words, scene.keys) for words in scene.typed)


def _put(path: Path, content: str) -> None:
    """Writes a file of a scene: a text of several lines as it is; else the file or folder of the project at a path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if "\n" in content:
        path.write_text(content, encoding="utf-8")
    elif (ROOT / content).is_dir():
        copytree(ROOT / content, path)
    else:
        path.write_text(code_of(ROOT / content), encoding="utf-8")


@contextmanager
def _a_player_in(work: Path, home: Path) -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(work)
        patch.setenv("COLUMNS", str(WIDTH))
        patch.setenv(HOME, str(home))
        for module in ("cli.grade", "screens.terminal"):
            patch.setattr(f"puzzles.{module}.protection", lambda: FULL)
        for name, fact in {"system": "Linux", "release": "6.8.0", "python_version": "3.13.0"}.items():
            patch.setattr(f"platform.{name}", lambda fact=fact: fact)
        patch.setattr("puzzles.cli.grade.find_spec", lambda name: True)
        patch.setattr("puzzles.judge.batch.cores", lambda: 1)  # and so a class is graded in this process
        patch.setattr("puzzles.cli.watch._saves", lambda path, stop: iter(()))
        yield patch


def _typed(words: str, keys: str) -> str:
    result = puzzles(*split(words), input=keys or None)
    lines = [f"$ puzzles {words}", *(line.rstrip() for line in result.output.splitlines())]
    if result.exit_code:
        lines.append(f"exit code {result.exit_code}")
    return TOTALS.sub("...", "\n".join([*lines, ""]))
