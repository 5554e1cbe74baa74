"""What a grader does once for its servers: it compiles their modules; and what it does if one cannot be started."""

from __future__ import annotations

import sys
from importlib.util import cache_from_source
from pathlib import Path

import pytest

from puzzles.judge.grader import grade_file
from puzzles.sandbox import client
from puzzles.sandbox.worker import server
from puzzles.tracks import find

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems may have no server")

BASIC = Path(__file__).parents[2] / "solutions" / "basic.py"


@pytest.mark.own_server
def test_a_server_that_cannot_be_started_loses_its_files_and_does_not_end_the_class(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("puzzles.sandbox.client.command", lambda: [str(tmp_path / "python")])
    (verdict,) = grade_file(str(BASIC), [find("basic")]).verdicts
    assert (verdict.status, verdict.reason) == ("failed", "lost")
    for fact in ("not started", "No such file or directory", "grade it again"):
        assert fact in verdict.message


@pytest.mark.parametrize("forbidden", [False, True])
def test_modules_of_servers_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forbidden: bool) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", forbidden)
    client.cache_bytecode()
    compiled = sorted(path.name for path in tmp_path.rglob("*.pyc"))
    assert bool(compiled) is not forbidden
    if compiled:
        at = Path(cache_from_source(server.__file__))
        before = at.stat().st_ino
        assert {name.partition(".")[0] for name in compiled} >= {"server", "reading", "functions"}
        client.cache_bytecode()
        assert at.stat().st_ino == before
