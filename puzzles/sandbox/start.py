"""How the grader starts the processes that read and run submissions: the command, and what such a process sees."""

import os
import sys
from importlib.util import cache_from_source
from pathlib import Path

from puzzles.search_path import START

from .visible_files import IMPORT_PACKAGE

START_SECONDS = 10.0
"""Seconds that a server has to start, beyond any limit of the player's."""

SERVER_PROGRAM = "import gc; gc.disable(); from puzzles.sandbox.worker.server import main; main()"
ONESHOT_PROGRAM = "from puzzles.sandbox.worker.oneshot import main; main()"


def can_fork() -> bool:
    """False on a system that cannot fork, where a process is started for each run."""
    return hasattr(os, "fork")


def command(program: str = SERVER_PROGRAM) -> list[str]:
    start = f"{START}; sys.path.append({str(IMPORT_PACKAGE.parent)!r}); {program}"
    return [os.path.realpath(sys.executable), "-I", "-S", "-B", "-X", "utf8", "-c", start]


def cache_bytecode() -> None:
    """Compiles the modules that only servers import, once for all servers, which write nothing."""
    worker = Path(__file__).parent / "worker"
    if not (sys.dont_write_bytecode or os.path.exists(cache_from_source(str(worker / "server.py")))):
        from compileall import compile_dir  # here, because it is slow to import and seldom needed

        compile_dir(worker, quiet=2)


ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""For the libraries of numpy, because a run may start no thread."""


def environment(folder: str) -> dict[str, str]:
    """Returns the environment variables that a submission sees: none of the user's."""
    kept = {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}  # Windows cannot do without
    return {**kept, **ONE_THREAD, "PATH": os.defpath, "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8"}
