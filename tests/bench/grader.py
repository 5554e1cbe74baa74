"""The speed of grading: seconds of a core for each run of a submission, and the memory of the grader.

A run is one definition at one size, in a process of its own. All else that grading takes is shared out among the runs:
starting Python and its servers, reading the files, judging, the reports.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import perf_counter
from typing import Any, NamedTuple

from puzzles.judge.batch import cores
from puzzles.judge.progress import HOME
from puzzles.tracks import track_of
from tests.support import CLASSICS, course

ROOT = Path(__file__).parents[2]
SLUGS = tuple(classic.slug for classic in CLASSICS)

GRADE = """\
import sys
from pathlib import Path
from puzzles.__main__ import main
try:
    main([*sys.argv[1:], "--trust", "--json"])
except SystemExit as end:
    assert end.code in (0, 1), end.code
status = Path("/proc/self/status").read_text()
print(status.partition("VmHWM:")[2].split()[0], file=sys.stderr)
"""
"""Prints its own peak memory in KiB. (`ru_maxrss` is never below that of the process that started it.)"""


class Grading(NamedTuple):
    """What it took to grade some files."""

    seconds: float
    busy: float
    """Seconds for which all its processes had a core, added up."""
    runs: int
    memory: int
    """Most memory of the process that hands out the work, in KiB."""

    @property
    def of_a_run(self) -> float:
        """Seconds for which a run takes up a core, idle or not."""
        return self.seconds * cores() / self.runs


def grade(*words: str, command: str = "grade") -> Grading:
    """Runs `puzzles grade` or `puzzles class` on paths and options, with modules that Python has compiled before."""
    begin, before = perf_counter(), getrusage(RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", GRADE, command, *words],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, after = perf_counter() - begin, getrusage(RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    rows = [row for file in json.loads(done.stdout)["files"] for row in file["results"]]
    return Grading(seconds, busy, sum(map(_runs, rows)), int(done.stderr.split()[-1]))


def environment() -> dict[str, str]:
    """This process' variables, but with the habit of Python to keep what it has compiled."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, HOME: tempfile.gettempdir()}


def _runs(row: dict[str, Any]) -> int:
    """Runs behind a verdict; of a failure it is not known how many."""
    track = track_of(row["puzzle"])
    if row["status"] not in ("passed", "over_target"):
        return 0
    return sum(1 for _ in track.judge.requests(track.puzzle(row["puzzle"])))


def class_of(files: int) -> Grading:
    """A class of so many files, each with the same eight solutions."""
    return _copies(files, "\n".join(_solution(slug) for slug in SLUGS))


def slow_class_of(files: int) -> Grading:
    """A class of so many files, each with one schedule that is right but misses its target, with all figures."""
    loss = "    del activations[model.LAYERS]\n"
    assert loss in _solution("basic")
    return _copies(files, _solution("basic").replace(loss, f"{loss}    model.forward(0, activations[0], weights[0])\n"))


COURSE = """\
roster = "roster.csv"
pages = "out"
gradebook = "book.csv"
[points]
basic = 5
ddp = 10
[late]
due = 2026-11-20T18:00:00Z
"""


def course_of_300() -> tuple[Grading, int]:
    """A course with a roster, points, pages and a gradebook, as `tests/support/course.py` makes it; and the bytes of
    its index."""
    with tempfile.TemporaryDirectory() as folder:
        here = course.write(Path(folder), course.with_groups(course.students(300), 10), course.worked)
        course.rules(Path(folder), COURSE)
        found = grade(folder, str(here), "--limit", "time=1s", command="class")
        return found, Path(folder, "out", "index.html").stat().st_size


def _solution(slug: str) -> str:
    return (ROOT / "solutions" / f"{slug}.py").read_text(encoding="utf-8")


def _copies(files: int, text: str) -> Grading:
    with tempfile.TemporaryDirectory() as folder:
        for number in range(files):
            Path(folder, f"student_{number:04}.py").write_text(text, encoding="utf-8")
        return grade(folder)


def eight() -> Sequence[str]:
    """The reference solutions of the classics."""
    return [f"solutions/{slug}.py" for slug in SLUGS]
