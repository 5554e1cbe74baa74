"""A class of many files, each with all eight puzzles: seconds of a core for each puzzle, and the grader's memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from puzzles.grading.batch import cores
from puzzles.grading.progress import HOME
from tests.support import CLASSICS

ROOT = Path(__file__).parents[2]

GRADE = """\
import resource, sys
from puzzles.commands.main import main
try:
    main(["grade", "--trust", "--json", sys.argv[1]])
except SystemExit as end:
    assert end.code == 0, end.code
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""


def class_of(files: int) -> tuple[float, float]:
    """Seconds times cores for each puzzle, and the most memory of the process that hands out the work."""
    text = "\n".join((ROOT / "solutions" / f"{classic.slug}.py").read_text(encoding="utf-8") for classic in CLASSICS)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(files):
            Path(folder, f"student_{number:03}.py").write_text(text, encoding="utf-8")
        begin = perf_counter()
        environment = {**os.environ, HOME: folder}
        command = [sys.executable, "-c", GRADE, folder]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        seconds = perf_counter() - begin
    return seconds * cores() / (files * len(CLASSICS)), float(done.stderr.split()[-1])
