"""How strictly this machine can shut a submission in: bubblewrap where it works, plain processes elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from .limits import Limits

HOUSE = Path(__file__).resolve().parents[2]
"""Where lib, drawing and puzzles stand."""

ROOMS = ("lib", "drawing", "puzzles")
"""What of it a submission may read. Not the solutions."""

INSTALLED = HOUSE if (HOUSE / "__init__.py").is_file() else HOUSE / "puzzles" / "package" / "training_puzzles"
"""The folder of the package `training_puzzles`, which files may import: in a wheel it is the one around the rooms."""

SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/etc/ld.so.cache", "/nix/store")
"""What of the machine a submission may read, besides Python's own folders."""

PACKAGES = sysconfig.get_path("purelib")
FOLDER = "/run-of-a-submission"
"""The run's own folder, in the sandbox."""

WITHOUT_USERS = ("SETUID", "SETGID", "KILL", "CHOWN", "DAC_OVERRIDE", "FOWNER")
"""What the keeper keeps of root's powers when root grades: to put each run under a user that owns nothing."""

PATIENCE = 10.0
"""Seconds that a keeper has to start, beyond any limit of the player's."""


class Tier(NamedTuple):
    """A way to run a submission. `why_not` tells why a better one is not used."""

    name: str
    why_not: str = ""
    forks: bool = True
    """Whether this system can fork; else a process is started for each run."""

    @property
    def is_sandbox(self) -> bool:
        return self.name == "bubblewrap"


class UnknownTier(ValueError):
    """A tier that there is not, or not here."""


@cache
def best(wanted: str = "auto") -> Tier:
    """The strictest tier that works here, or the one that is wanted.

    Raises:
        UnknownTier: bubblewrap is wanted and does not work; the text says why.
    """
    forks = hasattr(os, "fork")
    if wanted == "process":
        return Tier("process", "it was asked for", forks)
    why_not = _why_no_bubblewrap()
    if not why_not:
        return Tier("bubblewrap")
    if wanted == "bubblewrap":
        raise UnknownTier(f"bubblewrap does not work here: {why_not}")
    return Tier("process", why_not, forks)


@cache
def _why_no_bubblewrap() -> str:
    if sys.platform != "linux":
        return f"it is for Linux, and this is {sys.platform}"
    if shutil.which("bwrap") is None:
        return "there is no command bwrap; install the package bubblewrap"
    probe = command(Tier("bubblewrap"), Limits(), "pass")
    try:
        done = subprocess.run(probe, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as why:
        return str(why)
    return "" if done.returncode == 0 else (done.stderr.strip() or f"it ended with code {done.returncode}")[:200]


KEEPER = "from puzzles.sandbox.worker.server import main; main()"


SINGLE = "from puzzles.sandbox.worker.oneshot import main; main()"


def command(tier: Tier, limits: Limits, program: str = KEEPER) -> list[str]:
    """The command that starts a keeper in a tier."""
    path = f"sys.path.insert(0, {str(HOUSE)!r}); sys.path.append({str(INSTALLED.parent)!r})"
    start = f"import sys; {path}; {program}"
    python = [os.path.realpath(sys.executable), "-I", "-S", "-B", "-X", "utf8", "-c", start]
    return [*_bubblewrap(limits), *python] if tier.is_sandbox else python


def _bubblewrap(limits: Limits) -> list[str]:
    words = ["bwrap", "--die-with-parent", "--new-session", "--as-pid-1", "--clearenv"]
    if os.getuid() == 0:
        words += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
        words += ["--cap-drop", "ALL"]
        for power in WITHOUT_USERS:
            words += ["--cap-add", f"CAP_{power}"]
    else:
        words += ["--unshare-all"]
    for name, value in environment(FOLDER).items():
        words += ["--setenv", name, value]
    parents = {parent for place in (sys.base_prefix, PACKAGES, HOUSE / "lib") for parent in Path(place).parents}
    for parent in sorted(parents)[1:]:
        words += ["--perms", "0755", "--dir", str(parent)]  # or the run's user could not pass through them
    for folder in (*SYSTEM, sys.base_prefix, PACKAGES):
        words += ["--ro-bind-try", folder, folder]
    for room in ROOMS:
        words += ["--ro-bind", str(HOUSE / room), str(HOUSE / room)]
    words += ["--ro-bind", str(INSTALLED / "__init__.py"), str(INSTALLED / "__init__.py")]
    for hidden in hidden_folders():
        if hidden.is_relative_to(PACKAGES) or any(hidden.is_relative_to(HOUSE / room) for room in ROOMS):
            words += ["--tmpfs", str(hidden), "--remount-ro", str(hidden)]
    words += ["--proc", "/proc", "--dev", "/dev", "--size", str(limits.files), "--tmpfs", FOLDER, "--chdir", FOLDER]
    return [*words, "--remount-ro", "/dev", "--remount-ro", "/"]


def readable() -> tuple[list[str], list[str]]:
    """What a run may list, and what it may read, where there is no sandbox but a kernel that can forbid the rest."""
    hidden = hidden_folders()
    rooms = [HOUSE / room for room in ROOMS]
    ours = [entry for room in rooms for entry in _around(room, hidden)]
    theirs = [Path(PACKAGES)]
    if any(folder.is_relative_to(PACKAGES) for folder in hidden):  # installed: what must be hidden lies among packages
        theirs = list(_around(theirs[0], hidden))
    system = (*SYSTEM, "/dev/urandom", "/dev/random", "/proc", sys.base_prefix, str(INSTALLED / "__init__.py"))
    return [str(HOUSE), PACKAGES], [*system, *map(str, theirs), *map(str, ours)]  # imports begin with a list of names


def _around(folder: Path, hidden: Collection[Path]) -> Iterator[Path]:
    """A folder as entries that hold nothing hidden; leave is given for all that lies below an entry."""
    for entry in sorted(folder.iterdir()):
        if any(one.is_relative_to(entry) for one in hidden):
            if entry not in hidden:
                yield from _around(entry, hidden)
        else:
            yield entry


def fences() -> dict[str, Any]:
    """What the keeper is told where there is no sandbox: what a run may read, and what it must not."""
    return {"readable": readable(), "hidden": hidden()}


def hidden() -> list[str]:
    """Where the hidden folders really are."""
    return [os.path.realpath(folder) for folder in hidden_folders()]


def hidden_folders() -> list[Path]:
    """What a submission must not read: solutions, tests, and what classes are tried with, right results included."""
    houses = {HOUSE, Path(PACKAGES), Path(PACKAGES) / "training_puzzles"}  # a wheel may lie beside a clone
    names = ("solutions", "tests", "notebooks", "puzzles/catalog/engine")
    return [folder for house in sorted(houses) for name in names if (folder := house / name).is_dir()]


def environment(folder: str) -> dict[str, str]:
    """The variables that a submission sees: nothing of the user's."""
    kept = {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}  # Windows cannot do without
    return {**kept, "PATH": os.defpath, "HOME": folder, "TMPDIR": folder, "LANG": "C.UTF-8"}
