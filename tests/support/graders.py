"""Graders in processes of their own, as root or as an ordinary user, that grade what they are sent.

As a script: `python graders.py` reads requests from its input, one JSON object a line, and answers each with a line.
"""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
ORDINARY = 54_321
"""The id of a user that need not exist."""


class Seen(NamedTuple):
    """A verdict as the grader's process sends it."""

    status: str
    reason: str | None
    message: str
    notes: Sequence[str]

    def passed(self) -> bool:
        """True for a clean pass; the verdict is shown when an assertion on this fails."""
        return self.status == "passed" and not self.notes


class Grader:
    """A process that grades as one of the users."""

    def __init__(self, user: str) -> None:
        self.uid = ORDINARY if user == "ordinary user" and os.getuid() == 0 else os.getuid()
        if (user == "root") != (self.uid == 0):
            pytest.skip("these tests do not run as root")
        self._python = _python(self.uid)
        self._process = subprocess.Popen(
            [self._python, "-B", __file__, "a grader of the tests"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **_paths()},
            **_as(self.uid),
        )

    def grade(self, *sources: str, **limits: float) -> list[Seen]:
        """The verdicts on some files with the puzzle `basic`, or `DataParallel` if they define it, which one server
        grades in turn."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([sources, limits]), file=self._process.stdin, flush=True)
        return [Seen(*row) for row in json.loads(self._process.stdout.readline())]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def _as(uid: int) -> dict[str, Any]:
    return {} if uid == os.getuid() else {"user": uid, "group": uid, "extra_groups": []}


def _paths() -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join((str(ROOT), sysconfig.get_path("purelib")))}


def _python(uid: int) -> str:
    """A Python of this version that the user can start, with our packages."""
    system = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, system):
        try:
            command = [python, "-B", "-c", "import click, numpy, puzzles.judge.grader"]
            done = subprocess.run(command, env={**os.environ, **_paths()}, capture_output=True, check=False, **_as(uid))
        except OSError:
            continue
        if done.returncode == 0:
            return python
    pytest.skip("no Python here can be started by another user than root")


def main() -> None:
    from puzzles.catalog.engine import ENGINE_PUZZLES
    from puzzles.catalog.schedule import PUZZLES
    from puzzles.judge.grader import grade_puzzle
    from puzzles.judge.session import Session, new_client
    from puzzles.judge.submission import Submission
    from puzzles.sandbox.limits import Limits

    client = new_client()
    for line in sys.stdin:
        sources, changed = json.loads(line)
        limits = Limits()._replace(**changed)
        rows = []
        for source in sources:
            with Session(Submission(Path("theirs.py"), source.encode()), limits, client) as session:
                is_class = "class DataParallel" in source
                found = grade_puzzle(ENGINE_PUZZLES["DataParallel"] if is_class else PUZZLES["basic"], session)
            rows.append((found.status, found.reason, found.message, found.notes))
        print(json.dumps(rows), flush=True)
    client.close()


if __name__ == "__main__":
    main()
