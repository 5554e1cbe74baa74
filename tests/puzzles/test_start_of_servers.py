"""What a grader does once for its servers: looks for bubblewrap, and compiles their modules."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from puzzles.grading.grader import grade_file
from puzzles.sandbox import bubblewrap as options
from puzzles.sandbox import tiers
from puzzles.sandbox.bubblewrap import bubblewrap
from puzzles.sandbox.worker import server
from puzzles.tracks import find
from tests.support.tiers import require_tier

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")

BASIC = (Path(__file__).parents[2] / "solutions" / "basic.py").read_text(encoding="utf-8")

CACHED: tuple[Callable[..., object], ...] = (
    *(tiers.select_tier, tiers._why_no_bubblewrap),
    *(bubblewrap, options._without_nested_users),
)


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
def test_it_is_said_why_there_is_no_bubblewrap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, why: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if script:
        command(tmp_path, script)
    monkeypatch.setattr(tiers, "bubblewrap_command", lambda *_: [bubblewrap()])
    assert why in tiers.select_tier().no_bubblewrap_because
    assert tiers.select_tier().name == "process"
    with pytest.raises(tiers.UnknownTierError, match=why):
        tiers.select_tier("bubblewrap")


@pytest.mark.usefixtures("unknown")
def test_a_probe_that_works_is_started_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(tiers, "bubblewrap_command", lambda *_: [bubblewrap(), str(tmp_path / "started")])
    command(tmp_path, 'echo x >> "$1"')
    assert tiers.select_tier().name == tiers.select_tier("bubblewrap").name == "bubblewrap"
    assert (tmp_path / "started").read_text() == "x\n"


@pytest.fixture
def elsewhere(unknown: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Bubblewrap, in a folder that the system does not search by default, with a file to grade in the current one."""
    require_tier("bubblewrap")
    found = bubblewrap()
    for function in CACHED:
        function.cache_clear()  # type: ignore[attr-defined]
    for name in ("bin", "no_commands"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin" / "bwrap").symlink_to(found)
    (tmp_path / "mine.py").write_text(BASIC)
    monkeypatch.setattr(os, "defpath", str(tmp_path / "no_commands"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "bin" / "bwrap"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("entry", ["{}/bin", "bin", "./bin/"])
def test_bubblewrap_is_started_where_it_was_found(elsewhere: Path, monkeypatch: pytest.MonkeyPatch, entry: str) -> None:
    monkeypatch.setenv("PATH", f"{entry.format(Path.cwd())}{os.pathsep}{os.environ['PATH']}")
    assert tiers.select_tier().is_sandbox
    (verdict,) = grade_file("mine.py", [find("basic")], tier=tiers.select_tier()).verdicts
    assert verdict.status == "passed", verdict.message


def test_a_bubblewrap_that_cannot_be_started_as_servers_are_is_not_used(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(elsewhere.parent))
    monkeypatch.setattr(options, "bubblewrap", lambda: "bwrap")
    assert "bwrap" in tiers.select_tier().no_bubblewrap_because


def test_a_sandbox_that_cannot_be_started_loses_its_files_and_does_not_end_the_class(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(elsewhere.parent))
    tier = tiers.select_tier("bubblewrap")
    elsewhere.unlink()
    (verdict,) = grade_file("mine.py", [find("basic")], tier=tier).verdicts
    assert (verdict.status, verdict.reason) == ("failed", "lost")
    for fact in ("not started", "No such file or directory", "grade it again"):
        assert fact in verdict.message


@pytest.mark.usefixtures("unknown")
def test_nobody_looks_who_wants_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def never() -> None:
        raise AssertionError("bubblewrap was started")

    monkeypatch.setattr(tiers, "_why_no_bubblewrap", never)
    assert not tiers.select_tier("process").is_sandbox


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
