"""What a grader does once, so that its servers start sooner: looks for bubblewrap early, and compiles their modules."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from puzzles.sandbox import tiers
from puzzles.sandbox.worker import server

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")

CACHED: tuple[Callable[..., object], ...] = (tiers.best, tiers._why_no_bubblewrap, tiers._probe)


@pytest.fixture
def unknown() -> Iterator[None]:
    """Nothing is known about bubblewrap yet, nor afterwards."""
    for function in CACHED:
        function.cache_clear()  # type: ignore[attr-defined]
    yield
    for function in CACHED:
        function.cache_clear()  # type: ignore[attr-defined]


def command(folder: Path, script: str) -> None:
    path = folder / "bwrap"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.usefixtures("unknown")
@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo no namespaces >&2; exit 3", "no namespaces"),
        ("exit 3", "code 3"),
        (None, "no command bwrap"),
    ],
)
def test_looking_early_changes_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, why: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if script:
        command(tmp_path, script)
    monkeypatch.setattr(tiers, "bubblewrap_command", lambda *_: ["bwrap"])
    tiers.begin_to_look()
    assert why in tiers.best().why_not
    assert tiers.best().name == "process"
    with pytest.raises(tiers.UnknownTierError, match=why):
        tiers.best("bubblewrap")


@pytest.mark.usefixtures("unknown")
def test_a_probe_that_works_is_started_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(tiers, "bubblewrap_command", lambda *_: ["bwrap", str(tmp_path / "started")])
    command(tmp_path, 'echo x >> "$1"')
    tiers.begin_to_look()
    assert tiers.best().name == tiers.best("bubblewrap").name == "bubblewrap"
    assert (tmp_path / "started").read_text() == "x\n"


@pytest.mark.usefixtures("unknown")
def test_nobody_looks_who_wants_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> None:
        raise AssertionError("bubblewrap was started")

    monkeypatch.setattr(tiers, "_probe", never)
    tiers.begin_to_look("process")


@pytest.mark.parametrize("forbidden", [False, True])
def test_modules_of_servers_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forbidden: bool) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", forbidden)
    tiers.cache_bytecode()
    compiled = sorted(path.name for path in tmp_path.rglob("*.pyc"))
    assert bool(compiled) is not forbidden
    if compiled:
        at = Path(cache_from_source(server.__file__))
        before = at.stat().st_ino
        assert {name.partition(".")[0] for name in compiled} >= {"server", "supervisor", "schedule"}
        tiers.cache_bytecode()
        assert at.stat().st_ino == before
