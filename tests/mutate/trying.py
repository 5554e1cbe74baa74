"""Tries mutations on a copy of the tree: the related quick tests of each, and which of them fail."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from .table import Mutation

LEFT_OUT = shutil.ignore_patterns(
    ".*", "__pycache__", "node_modules", "build", "dist", "site", "my_*", "*.egg-info", "*.whl"
)
"""What a copy of the tree does without."""

PATIENCE = 300.0
"""Seconds for the tests of one mutation. One that makes them hang is caught too."""

CAUGHT = re.compile(r"^(?:FAILED|ERROR) ((\S+?\.py)(?:::\S.*?)?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Trial:
    """The tests that failed with a mutation, by node id; `problem` says why nothing is known."""

    failed: tuple[str, ...]
    seconds: float
    hung: bool = False
    problem: str = ""

    @property
    def is_caught(self) -> bool:
        return bool(self.failed) or self.hung

    @property
    def files(self) -> list[str]:
        return sorted({test.partition("::")[0] for test in self.failed})


@contextmanager
def copy_of(root: Path) -> Iterator[Path]:
    """A copy of the tree, in a temporary folder that is removed at the end."""
    with TemporaryDirectory(prefix="mutate-") as folder:
        os.chmod(folder, 0o755)  # runs that are graded as another user read the code
        copy = Path(folder) / "tree"
        shutil.copytree(root, copy, ignore=_below(root), symlinks=True)
        yield copy


def _below(root: Path) -> Callable[[str, list[str]], set[str]]:
    """Leaves out `LEFT_OUT` at the top, and caches everywhere: `puzzles/page` is code, `site` is built."""

    def ignored(folder: str, names: list[str]) -> set[str]:
        if Path(folder) == root:
            return LEFT_OUT(folder, names)
        return {name for name in names if name == "__pycache__"}

    return ignored


class Copy:
    """A copy of the tree with at most one mutation at a time."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._writes = 0

    @contextmanager
    def mutated(self, mutation: Mutation) -> Iterator[None]:
        path = self.root / mutation.file
        text, changed = path.read_text(encoding="utf-8"), mutation.applied(self.root)
        self._write(path, changed)
        try:
            yield
        finally:
            self._write(path, text)

    def _write(self, path: Path, text: str) -> None:
        """Python knows an outdated cache by a file's size and the second of its change, so each write has its own."""
        path.write_text(text, encoding="utf-8")
        self._writes += 1
        os.utime(path, (self._writes * 10, self._writes * 10))

    def failing(self, tests: Sequence[str], patience: float | None = None) -> Trial:
        """Runs the quick tests at these paths, for at most `PATIENCE` seconds unless another time is given."""
        begin = time.monotonic()
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-m", "not slow", "--tb=no", "-rfE"]
        command += ["--continue-on-collection-errors", *_processes(tests), *tests]
        process = subprocess.Popen(
            command, cwd=self.root, env=self._environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=PATIENCE if patience is None else patience)
        except subprocess.TimeoutExpired:
            return Trial((), time.monotonic() - begin, hung=True)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        failed = tuple(dict.fromkeys(found[1] for found in CAUGHT.finditer(output)))
        is_known = process.returncode == 0 or (process.returncode == 1 and failed)
        problem = "" if is_known else f"pytest ended with {process.returncode}:\n{output[-2000:]}"
        return Trial(failed, time.monotonic() - begin, problem=problem)

    def _environment(self) -> dict[str, str]:
        """The copy comes before the tree that is installed, also in processes that tests start. Bytecode is kept, or
        each process would compile the project again."""
        left_out = ("PYTEST_", "COV_", "PYTHONDONTWRITEBYTECODE")
        env = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        return {**env, "PYTHONPATH": str(self.root), "COLUMNS": "200"}


def _processes(tests: Sequence[str]) -> list[str]:
    """Two processes, unless there is one file or one core."""
    several = len(tests) > 1 or not tests[0].partition("::")[0].endswith(".py")
    if not several or (os.cpu_count() or 1) < 2:
        return []
    return ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
