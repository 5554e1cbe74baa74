"""Tiers of isolation: bubblewrap where it works, processes with operating system limits elsewhere.

Prior art: Flatpak starts applications with bubblewrap in the same way. The process tier needs no program and no
privilege; on Linux the kernel's Landlock protects files there, elsewhere only a hook of Python's does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .limits import Limits
from .visible_files import (
    INSTALL_ROOT,
    READABLE_PACKAGES,
    SITE_PACKAGES,
    SYSTEM_FOLDERS,
    covered_folders,
)

RUN_FOLDER = "/run-of-a-submission"
"""The only folder in the sandbox that a run can write to."""

KEPT_CAPABILITIES = ("SETUID", "SETGID", "KILL", "CHOWN", "DAC_OVERRIDE", "FOWNER")
"""Capabilities that the server keeps when root grades: with them it gives each run a user that owns nothing."""

START_SECONDS = 10.0
"""Seconds that a server has to start, beyond any limit of the player's."""

SERVER_PROGRAM = "from puzzles.sandbox.worker.server import main; main()"
ONESHOT_PROGRAM = "from puzzles.sandbox.worker.oneshot import main; main()"


class Tier(NamedTuple):
    """A way to isolate a submission. `why_not` explains why a stricter one is not used."""

    name: str
    why_not: str = ""
    forks: bool = True
    """False on a system that cannot fork; there a process is started for each run."""

    @property
    def is_sandbox(self) -> bool:
        return self.name == "bubblewrap"


class UnknownTierError(ValueError):
    """A tier that does not exist, or not on this machine."""


@cache
def best(wanted: str = "auto") -> Tier:
    """Returns the strictest tier that works here, or the one that is wanted.

    Raises:
        UnknownTierError: bubblewrap is wanted and does not work; the text says why.
    """
    forks = hasattr(os, "fork")
    if wanted == "process":
        return Tier("process", "it was asked for", forks)
    why_not = _why_no_bubblewrap()
    if not why_not:
        return Tier("bubblewrap")
    if wanted == "bubblewrap":
        raise UnknownTierError(f"bubblewrap does not work here: {why_not}")
    return Tier("process", why_not, forks)


@cache
def _why_no_bubblewrap() -> str:
    """Reason why bubblewrap cannot be used here, found by starting Python in it; empty if it can."""
    if sys.platform != "linux":
        return f"it is for Linux, and this is {sys.platform}"
    if shutil.which("bwrap") is None:
        return "there is no command bwrap; install the package bubblewrap"
    probe = command(Tier("bubblewrap"), Limits(), "pass")
    try:
        done = subprocess.run(probe, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=START_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as why:
        return str(why)
    return "" if done.returncode == 0 else (done.stderr.strip() or f"it ended with code {done.returncode}")[:200]


def command(tier: Tier, limits: Limits, program: str = SERVER_PROGRAM) -> list[str]:
    """Returns the command that starts a Python program in a tier."""
    start = f"import sys; sys.path.insert(0, {str(INSTALL_ROOT)!r}); {program}"
    python = [os.path.realpath(sys.executable), "-I", "-S", "-B", "-X", "utf8", "-c", start]
    return [*_namespaces(), *_mounts(limits), *python] if tier.is_sandbox else python


def _namespaces() -> list[str]:
    """Options of bubblewrap on processes, network, users, capabilities and variables."""
    words = ["bwrap", "--die-with-parent", "--new-session", "--as-pid-1", "--clearenv"]
    if os.getuid() == 0:
        words += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
        words += ["--cap-drop", "ALL"]
        for capability in KEPT_CAPABILITIES:
            words += ["--cap-add", f"CAP_{capability}"]
    else:
        words += ["--unshare-all"]
    for name, value in environment(RUN_FOLDER).items():
        words += ["--setenv", name, value]
    return words


def _mounts(limits: Limits) -> list[str]:
    """Options of bubblewrap on files: visible folders read-only, hidden ones covered by empty ones."""
    words = []
    parents = {parent for at in (sys.base_prefix, SITE_PACKAGES, INSTALL_ROOT / "lib") for parent in Path(at).parents}
    for parent in sorted(parents)[1:]:
        words += ["--perms", "0755", "--dir", str(parent)]  # or the run's user could not pass through them
    for folder in (*SYSTEM_FOLDERS, sys.base_prefix, SITE_PACKAGES):
        words += ["--ro-bind-try", folder, folder]
    for package in READABLE_PACKAGES:
        words += ["--ro-bind", str(INSTALL_ROOT / package), str(INSTALL_ROOT / package)]
    for hidden in covered_folders():
        words += ["--tmpfs", str(hidden), "--remount-ro", str(hidden)]
    words += ["--proc", "/proc", "--dev", "/dev", "--size", str(limits.files), "--tmpfs", RUN_FOLDER]
    return [*words, "--chdir", RUN_FOLDER, "--remount-ro", "/dev", "--remount-ro", "/"]


def environment(folder: str) -> dict[str, str]:
    """Returns the variables that a submission sees: nothing of the user's."""
    kept = {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}  # Windows cannot do without
    return {**kept, "PATH": os.defpath, "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8"}
