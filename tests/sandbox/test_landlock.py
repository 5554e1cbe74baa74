"""The kernel's Landlock restricts a run, or an audit hook where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from puzzles.judge.grader import grade_file
from puzzles.sandbox.limits import MIB, Limits
from puzzles.sandbox.visible_files import INSTALL_ROOT
from puzzles.sandbox.worker import landlock, os_limits
from puzzles.tracks import TRACKS

SOLVED = (INSTALL_ROOT / "solutions" / "basic.py").read_text(encoding="utf-8")

needs_landlock = pytest.mark.skipif(not landlock.version(), reason="this kernel has no Landlock")


def graded(tmp_path: Path, body: str):
    path = tmp_path / "theirs.py"
    path.write_text(SOLVED.replace("    return model", f"{body}    return model"))
    limits = Limits(memory=512 * MIB)
    return grade_file(str(path), [TRACKS["schedule"].puzzle("basic")], limits).verdicts[0]


@pytest.mark.sampled(2)
@needs_landlock
@pytest.mark.parametrize(
    "path", [INSTALL_ROOT / "solutions" / "ddp.py", INSTALL_ROOT / "pyproject.toml", "/etc/passwd", "secret.txt"]
)
def test_a_run_reads_nothing_that_is_not_its_own(tmp_path: Path, path: Path | str) -> None:
    secret = tmp_path / path
    if not secret.exists():
        secret.write_text("mine")
    verdict = graded(tmp_path, f"    open({str(secret)!r})\n")
    assert (verdict.reason, "PermissionError" in verdict.message) == ("crash", True), verdict


@needs_landlock
def test_a_run_cannot_read_around_python_either(tmp_path: Path) -> None:
    answer = INSTALL_ROOT / "solutions" / "ddp.py"
    call = f"    import ctypes\n    assert ctypes.CDLL(None).open({str(answer).encode()!r}, 0) == -1\n"
    assert graded(tmp_path, call).status == "passed"


@needs_landlock
def test_a_run_writes_in_its_folder_only(tmp_path: Path) -> None:
    assert graded(tmp_path, "    open('new', 'w').write('x')\n").status == "passed"
    assert graded(tmp_path, f"    open({str(tmp_path / 'new')!r}, 'w')\n").reason == "crash"
    assert not (tmp_path / "new").exists()


@needs_landlock
@pytest.mark.skipif(landlock.version() < 6, reason="this kernel's Landlock knows nothing of signals")
def test_a_run_cannot_signal_its_supervisor_nor_connect(tmp_path: Path) -> None:
    body = "    import os, socket\n"
    for call in ("os.kill(os.getppid(), 9)", "socket.create_connection(('127.0.0.1', 9), 1)"):
        body += f"    try: {call}\n    except PermissionError: pass\n    else: raise ValueError\n"
    assert graded(tmp_path, body).status == "passed"


def test_without_landlock_python_refuses_the_folders() -> None:
    """In a process of its own, because an audit hook cannot be removed."""
    code = f"""
from puzzles.sandbox.worker import os_limits
os_limits.deny_paths([{str(INSTALL_ROOT / "solutions")!r}])
import os
for look in (open, os.listdir, os.scandir):
    for path in ({str(INSTALL_ROOT / "solutions" / "basic.py")!r}, {str(INSTALL_ROOT / "lib" / ".." / "solutions")!r}):
        try:
            look(path)
        except PermissionError as why:
            assert "not for submissions" in str(why)
        else:
            raise AssertionError(path)
open({str(INSTALL_ROOT / "lib" / "__init__.py")!r}).close()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=INSTALL_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_kernel_without_landlock_restricts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "sys", SimpleNamespace(platform="darwin"))
    assert landlock.version() == 0
    assert landlock.restrict_to(landlock.ruleset([], [], [])) is False


@pytest.mark.parametrize("private", [None, "Python", "packages", "game"])
def test_root_keeps_the_right_to_read_where_only_root_can(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, private: str | None
) -> None:
    """A clone below /root is as unreadable to another user as a Python there."""
    closed = tmp_path / "closed"
    closed.mkdir(0o700)
    for name, module, attribute in (
        ("Python", os, "__file__"),
        ("packages", sys, "prefix"),
        ("game", os_limits, "__file__"),
    ):
        monkeypatch.setattr(module, attribute, str(closed / "file") if private == name else "/usr/lib/file")
    assert os_limits._needs_to_read.__wrapped__() == (private is not None)
