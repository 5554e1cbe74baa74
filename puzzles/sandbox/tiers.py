"""Tiers of isolation: bubblewrap where it works, processes with operating system limits elsewhere.

The process tier needs no program and no privilege. On Linux the kernel's Landlock protects files there, elsewhere only
a hook of Python's does.
"""

import os
import subprocess
import sys
from functools import cache
from importlib.util import cache_from_source
from pathlib import Path
from typing import NamedTuple

from puzzles.search_path import START

from .bubblewrap import SERVER_FOLDER, bubblewrap, bubblewrap_command
from .limits import Limits
from .protocol import RUN_FOLDER
from .visible_files import IMPORT_PACKAGE

START_SECONDS = 10.0
"""Seconds that a server has to start, beyond any limit of the player's."""

SERVER_PROGRAM = "import gc; gc.disable(); from puzzles.sandbox.worker.server import main; main()"
ONESHOT_PROGRAM = "from puzzles.sandbox.worker.oneshot import main; main()"


class IsolationTier(NamedTuple):
    """A way to isolate a submission. `no_bubblewrap_because` explains why a stricter one is not used."""

    name: str
    no_bubblewrap_because: str = ""
    forks: bool = True
    """False on a system that cannot fork; there a process is started for each run."""

    @property
    def is_sandbox(self) -> bool:
        return self.name == "bubblewrap"


class UnknownTierError(ValueError):
    """A tier that does not exist, or not on this machine."""


@cache
def select_tier(requested: str = "auto") -> IsolationTier:
    """Returns the strictest tier that works here, or the one that is requested."""
    forks = hasattr(os, "fork")
    if requested == "process":
        return IsolationTier("process", "it was asked for", forks)
    no_bubblewrap_because = _why_no_bubblewrap()
    if not no_bubblewrap_because:
        return IsolationTier("bubblewrap")
    if requested == "bubblewrap":
        raise UnknownTierError(f"bubblewrap does not work here: {no_bubblewrap_because}")
    return IsolationTier("process", no_bubblewrap_because, forks)


@cache
def _why_no_bubblewrap() -> str:
    """Reason why bubblewrap cannot be used here, found by starting Python in it; empty if it can."""
    if sys.platform != "linux":
        return f"it is for Linux, and this is {sys.platform}"
    if not bubblewrap():
        return "there is no command bwrap; install the package bubblewrap"
    try:  # as a server is started: in the same folder, with the same variables
        probe = subprocess.run(
            command(IsolationTier("bubblewrap"), Limits(), "pass"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            env=environment(""),
            timeout=START_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as why:
        return str(why)
    return "" if probe.returncode == 0 else (probe.stderr.strip() or f"it ended with code {probe.returncode}")[:200]


def command(tier: IsolationTier, limits: Limits, program: str = SERVER_PROGRAM) -> list[str]:
    start = f"{START}; sys.path.append({str(IMPORT_PACKAGE.parent)!r}); {program}"
    python = [os.path.realpath(sys.executable), "-I", "-S", "-B", "-X", "utf8", "-c", start]
    if not tier.is_sandbox:
        return python
    return [*bubblewrap_command(limits, environment(f"{SERVER_FOLDER}/{RUN_FOLDER}")), *python]


def cache_bytecode() -> None:
    """Compiles the modules that only servers import, once for all servers, which write nothing."""
    worker = Path(__file__).parent / "worker"
    if not (sys.dont_write_bytecode or os.path.exists(cache_from_source(str(worker / "server.py")))):
        from compileall import compile_dir  # here, because it is slow to import and seldom needed

        compile_dir(worker, quiet=2)


def environment(folder: str) -> dict[str, str]:
    """Returns the environment variables that a submission sees: none of the user's."""
    kept = {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}  # Windows cannot do without
    return {**kept, "PATH": os.defpath, "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8"}
