"""A class whose grader is ended leaves nothing running and nothing behind, and can be resumed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from watchfiles import watch

from puzzles.judge.progress import HOME
from puzzles.sandbox.client import SHARED_MEMORY
from tests.support.hostile import SOLVED
from tests.support.shared_sandbox_server import children

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits for processes that are not its own")

ENDS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)


def descendants(process: int) -> list[int]:
    return [found for child in children(process) for found in (child, *descendants(child))]


def wait_for_first_verdict(home: Path, grader: subprocess.Popen[bytes]) -> None:
    """Until the journal of the class has a line; the grader must not have ended before."""
    with closing(watch(home, debounce=50, step=10, yield_on_timeout=True, rust_timeout=5_000)) as changes:
        while not any(journal.stat().st_size for journal in home.rglob("*.jsonl")):
            assert grader.poll() is None, "it has ended"
            next(changes)


def folders_of(graders: list[int], *places: str | Path) -> list[str]:
    """Folders that servers of these processes have made."""
    starts = tuple(f"puzzles-{pid}-" for pid in graders)
    return [name for place in places if os.path.isdir(place) for name in os.listdir(place) if name.startswith(starts)]


def end_by_signals() -> None:
    """Undoes what `nohup` does to the tests."""
    for end in ENDS[1:]:
        signal.signal(end, signal.SIG_DFL)


@pytest.fixture
def grading(tmp_path: Path) -> list[str]:
    """The command that grades a class of two files: one that passes, and one that would take a minute."""
    folder = tmp_path / "class"
    folder.mkdir()
    (folder / "a.py").write_text(SOLVED)
    (folder / "b.py").write_text("import os, time\ndef basic(model):\n    os.fork()\n    while True: time.sleep(60)\n")
    words = ["grade", str(folder), "--puzzle", "basic", "--limit", "time=60s", "--jobs", "1"]
    return [sys.executable, "-m", "puzzles", *words]


@pytest.mark.slow
@pytest.mark.parametrize("end", ENDS)
def test_nothing_outlives_a_grader_that_is_ended(
    grading: list[str], home_of_its_own: Path, tmp_path: Path, end: signal.Signals
) -> None:
    environment = {**os.environ, HOME: str(home_of_its_own), "TMPDIR": str(tmp_path)}
    main = subprocess.Popen(
        grading, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        preexec_fn=end_by_signals,
    )  # fmt: skip
    wait_for_first_verdict(home_of_its_own, main)
    below = descendants(main.pid)
    started = [os.pidfd_open(pid) for pid in below]
    assert len(started) > 1, "the pool, and its server"
    assert folders_of(below, SHARED_MEMORY, tmp_path)
    main.send_signal(end)
    assert main.wait() == -end
    for process in started:
        assert select.select([process], [], [], 20)[0], "a process is still there"
        os.close(process)
    assert folders_of(below, SHARED_MEMORY, tmp_path) == []

    (tmp_path / "class" / "b.py").write_text(SOLVED)
    resumed = subprocess.run([*grading, "--resume"], env=environment, capture_output=True, text=True, check=False)
    assert (resumed.returncode, "2 passed" in resumed.stdout) == (0, True), resumed
