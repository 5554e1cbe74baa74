"""No solution, test or trial can be read or imported by a submission, however it is isolated."""

from __future__ import annotations

import ast
import hashlib
import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from puzzles.sandbox import visible_files
from puzzles.sandbox.limits import MIB, Limits
from puzzles.sandbox.visible_files import (
    BUILT_NAMES,
    HIDDEN_NAMES,
    INSTALL_ROOT,
    READABLE_PACKAGES,
    allowed_paths,
    hidden_folders,
    read_rules,
    visible_roots,
)
from puzzles.sandbox.worker import landlock
from puzzles.sandbox.worker.runner import HIDDEN_MODULES
from puzzles.tracks import TRACKS
from tests.support.verdicts import session_of

MIN_SIZE = 200
"""Bytes of a file that says something; shorter ones, such as empty packages, may well have a double."""

LOOK = """
import hashlib, json, os, stat, sys

def below(root):
    yield root
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if os.path.join(folder, name) not in ("/proc", "/dev", "/sys")]
        yield from (os.path.join(folder, name) for name in names)

def basic(model):
    found, met = {{}}, set()
    for path in (path for root in {roots!r} for path in below(root)):
        try:
            about = os.stat(path)
            ours = path.startswith({ours!r})
            if not stat.S_ISREG(about.st_mode) or not (ours or about.st_size in {sizes!r} and about.st_ino not in met):
                continue
            with open(path, "rb") as file:
                found[path] = hashlib.sha256(file.read()).hexdigest()
            met.add(about.st_ino)
        except OSError:
            pass
    modules = [name for name, module in sys.modules.items() if module is not None]
    os.write(3, (json.dumps({{"files": found, "modules": modules}}) + "\\n").encode())
    os._exit(0)
"""
"""A submission that opens every file below some folders, if it is the game's or as long as a hidden one, and sends
the list with their digests."""


class Seen(NamedTuple):
    """Files that a submission could read, with their digests, and the modules that were loaded in it."""

    files: dict[str, str]
    modules: list[str]


def digests(paths: Iterator[Path]) -> dict[str, Path]:
    """Files by their content, but for short ones."""
    files = [path for path in paths if path.is_file() and path.stat().st_size >= MIN_SIZE]
    return {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in files}


@pytest.fixture(scope="module")
def answers() -> dict[str, Path]:
    """All files in hidden folders, by content: sources, notebooks, and what Python has compiled of them; not what is
    built, which has copies of these and of files that all may read."""
    others = {".git", *BUILT_NAMES}
    folders = [each for each in hidden_folders() if each.is_relative_to(INSTALL_ROOT) and each.name not in others]
    return digests(path for folder in folders for path in folder.rglob("*"))


EVERYWHERE = [pytest.param(name, marks=pytest.mark.slow) for name in ("Landlock", "audit hook")]


@pytest.fixture(scope="module", params=["the game's folders", *EVERYWHERE])
def seen(request: pytest.FixtureRequest, answers: dict[str, Path]) -> Iterator[Seen]:
    if request.param == "the game's folders":
        yield look(answers, [], whole_machine=False)
    elif request.param == "Landlock":
        if not landlock.version():
            pytest.skip("this kernel has no Landlock")
        yield look(answers, [Path("/")])
    else:  # which hides what is hidden, and nothing else
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("puzzles.sandbox.client.read_rules", lambda: {**read_rules(), "readable": []})
            yield look(answers, [])


def look(answers: dict[str, Path], roots: list[Path], whole_machine: bool = True) -> Seen:
    """The findings of a submission that looks below these folders, all that it may read, and all that it may not."""
    visible = [INSTALL_ROOT, *visible_roots()] if whole_machine else [INSTALL_ROOT / name for name in READABLE_PACKAGES]
    roots = [*visible, *hidden_folders(), *answers.values(), *roots]
    sizes = {path.stat().st_size for path in answers.values()}
    ours = tuple(str(INSTALL_ROOT / name) + os.sep for name in (*READABLE_PACKAGES, *HIDDEN_NAMES))
    source = LOOK.format(roots=[*map(str, roots)], sizes=sizes, ours=ours)
    limits = Limits(seconds=120, memory=1024 * MIB)
    with session_of(source, limits) as session:
        request = {"slug": "basic", "stage": TRACKS["schedule"].judge.stage, "size": [2, 4, 1], "longest": 64 * MIB}
        answer = session.run(request, limits.seconds)
    assert answer["ended"] == "exit", answer["output"]
    row = json.loads(answer["result"].splitlines()[-1])
    return Seen(row["files"], row["modules"])


@pytest.mark.slow
def test_the_walk_sees_what_a_submission_needs(seen: Seen) -> None:
    """Else the other tests would prove nothing."""
    for package in READABLE_PACKAGES:
        assert str(INSTALL_ROOT / package / "__init__.py") in seen.files
    assert "lib" in seen.modules


def test_no_readable_file_lies_in_a_hidden_folder(seen: Seen, answers: dict[str, Path]) -> None:
    assert {"solutions", "tests", "notebooks"} <= {path.relative_to(INSTALL_ROOT).parts[0] for path in answers.values()}
    hidden = [os.path.realpath(folder) + os.sep for folder in hidden_folders()]
    assert [path for path in seen.files if os.path.realpath(path).startswith(tuple(hidden))] == []


def test_no_readable_file_is_a_copy_of_a_hidden_one(seen: Seen, answers: dict[str, Path]) -> None:
    assert {path: answers[digest] for path, digest in seen.files.items() if digest in answers} == {}


@pytest.mark.slow
def test_no_readable_module_has_a_definition_of_a_hidden_one(seen: Seen) -> None:
    """Solutions, and the trials with their results and targets, are written down nowhere else."""
    hidden = hidden_definitions()
    ours = tuple(str(INSTALL_ROOT / package) + os.sep for package in READABLE_PACKAGES)
    readable = [Path(path) for path in seen.files if path.startswith(ours) and path.endswith(".py")]
    assert len(hidden) > 200
    assert len(readable) > 100
    assert [(path, hidden[body]) for path in readable for _, body in definitions(path) if body in hidden] == []


@cache
def hidden_definitions() -> dict[str, str]:
    """Functions and classes of solutions and trials, by their syntax trees."""
    folders = (INSTALL_ROOT / "solutions", INSTALL_ROOT / "puzzles" / "catalog" / "engine")
    paths = [path for folder in folders for path in folder.rglob("*.py")]
    return {body: f"{name} of {path}" for path in paths for name, body in definitions(path)}


def definitions(path: Path) -> Iterator[tuple[str, str]]:
    """Functions and classes of a file, each with its syntax tree; not those of one statement, which may be alike."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and len(node.body) > 1:
            yield node.name, ast.dump(ast.Module(node.body, []))


def test_no_hidden_module_is_loaded(seen: Seen) -> None:
    """A worker is forked from a server: what that has imported would be in memory."""
    hidden = tuple(f"{name}." for name in HIDDEN_MODULES)
    assert [name for name in seen.modules if f"{name}.".startswith(hidden)] == []


def test_hidden_modules_are_in_hidden_folders() -> None:
    folders = {INSTALL_ROOT.joinpath(*name.split(".")) for name in HIDDEN_MODULES}
    assert folders <= set(hidden_folders())


# --- Other places to be installed ---

ANSWERS = ("solutions", "tests", "puzzles/catalog/engine", "puzzles/content/engine")


def installed(monkeypatch: pytest.MonkeyPatch, root: Path, packages: Path) -> None:
    """As if the game lay in `root`, and third-party packages in `packages`."""
    for folder in ("lib", "drawing", "puzzles/catalog/layout", *ANSWERS):
        (root / folder).mkdir(parents=True)
    packages.mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(visible_files, "INSTALL_ROOT", root)
    monkeypatch.setattr(visible_files, "SITE_PACKAGES", str(packages))


@pytest.mark.parametrize(
    ("root", "packages", "system"),
    [
        ("game", "venv/site-packages", ()),
        ("game", "game/.venv/site-packages", ()),
        ("site-packages", "site-packages", ()),
        ("site-packages/training_puzzles", "site-packages", ()),
        ("usr/src/game", "usr/lib/site-packages", ("usr",)),
        ("usr/lib/site-packages", "usr/lib/site-packages", ("usr",)),
    ],
)
def test_answers_are_hidden_wherever_the_game_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str, packages: str, system: tuple[str, ...]
) -> None:
    """A clone may lie in a system folder, all of which programs may read; a wheel lies among packages."""
    installed(monkeypatch, tmp_path / root, tmp_path / packages)
    monkeypatch.setattr(visible_files, "SYSTEM_FOLDERS", tuple(str(tmp_path / folder) for folder in system))
    answers = [tmp_path / root / name for name in ANSWERS]
    assert set(answers) <= set(hidden_folders())
    _, readable = allowed_paths()
    for path in readable:
        assert not any(answer.is_relative_to(path) for answer in answers), path
    for needed in ("lib", "puzzles/catalog/layout"):
        assert any((tmp_path / root / needed).is_relative_to(path) for path in readable)
