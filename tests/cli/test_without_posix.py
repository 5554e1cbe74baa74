"""Playing and grading one's own file where the system has no fork, fcntl, resource or SIGKILL, as on Windows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from puzzles.cli.main import main

ROOT = Path(__file__).parents[2]

WITHOUT = """
import os, signal, subprocess, sys
for name in ("fcntl", "resource"):
    sys.modules[name] = None
for name in ("fork", "setsid", "killpg", "register_at_fork"):
    delattr(os, name)
del signal.SIGKILL
sys.path.insert(0, {root!r})
"""

PROGRAM = """
from puzzles.sandbox import client
client.ONESHOT_PROGRAM = {without!r} + client.ONESHOT_PROGRAM
client.end_tree = lambda process: (process.poll() is None and os.kill(process.pid, 9), process.wait())
from puzzles.cli.main import main
main({words!r}, prog_name="puzzles")
"""


def puzzles(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    without = WITHOUT.format(root=str(ROOT))
    code = without + PROGRAM.format(without=without, words=list(words))
    return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_solution_passes(tmp_path: Path) -> None:
    (tmp_path / "solved.py").write_text((ROOT / "solutions" / "gpipe.py").read_text(encoding="utf-8"), encoding="utf-8")
    done = puzzles(tmp_path, "grade", "solved.py", "--trust")
    assert (done.returncode, "33.3" in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.mark.slow
def test_the_first_ten_minutes(tmp_path: Path) -> None:
    for words in (("list",), ("start", "basic", "-o", "mine.py")):
        done = puzzles(tmp_path, *words)
        assert done.returncode == 0, (words, done.stderr)
    done = puzzles(tmp_path, "grade", "mine.py")
    assert (done.returncode, "Nothing attempted yet" in done.stdout) == (1, True), done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(main.list_commands(None)))  # type: ignore[arg-type]  # no context is needed
def test_every_command_shows_its_help(command: str, tmp_path: Path) -> None:
    done = puzzles(tmp_path, command, "--help")
    assert (done.returncode, "Usage" in done.stdout) == (0, True), done.stderr
