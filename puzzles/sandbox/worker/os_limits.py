"""What the operating system can take away from a process before a player's code starts, and how all of it ends."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import landlock

LINUX = sys.platform == "linux"
PDEATHSIG, DUMPABLE, KEEPCAPS, NO_NEW_PRIVILEGES, SUBREAPER = 1, 4, 8, 38, 36
"""From linux/prctl.h."""

DAC_READ_SEARCH = 1 << 2
CAPABILITIES_V3 = 0x20080522
"""From linux/capability.h."""

OPEN_FILES = 64

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty")
"""Files that everybody may write to."""


def prctl(option: int, value: int) -> None:
    if LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def shelter() -> None:
    """Makes this process hard to reach for its children: not traced, not read, not interrupted; and they stay its own
    when their parents end."""
    prctl(DUMPABLE, 0)
    prctl(SUBREAPER, 1)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGQUIT", "SIGPIPE", "SIGTSTP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)


def fresh_folder(folder: str) -> None:
    """Empties the folder that a run may write to, and lets whoever runs there write."""
    os.chmod(folder, 0o777)
    for here, folders, _ in os.walk(folder):
        for name in folders:  # opened before the walk goes on into it
            if not os.path.islink(path := os.path.join(here, name)):
                os.chmod(path, 0o700)
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def confine(limits: Mapping[str, Any], guest: int, readable: Sequence[Sequence[str]] = ()) -> bool:
    """Puts this process, and all that it will start, under its limits; for good. Root becomes user `guest`.

    With `readable`, folders to list and files and folders to read: nothing else can be read, and nothing written but
    in the present folder, where the kernel can do that; whether it could.
    """
    import resource

    os.setsid()
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGQUIT", "SIGTSTP", "SIGCHLD"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    if os.getuid() == 0:
        _become(guest)
    prctl(PDEATHSIG, signal.SIGKILL)  # after a change of user, which would undo it
    _cap(resource.RLIMIT_CORE, 0)
    _cap(resource.RLIMIT_FSIZE, limits["files"])
    _cap(resource.RLIMIT_NOFILE, OPEN_FILES)
    _cap(resource.RLIMIT_CPU, int(limits["seconds"] * limits["processes"]) + 5)
    cap_memory(limits["memory"])
    if LINUX:
        _cap(resource.RLIMIT_NPROC, _tasks_of(os.getuid()) + limits["processes"] - 1)
    prctl(NO_NEW_PRIVILEGES, 1)
    return bool(readable) and landlock.shut_in(*readable, (os.getcwd(), *DEVICES))


def fence_off(folders: Sequence[str]) -> None:
    """Makes Python refuse to open or list what lies there, for where the kernel cannot: a fence, and no wall, for code
    that calls the system itself gets past it."""

    def refuse(event: str, given: tuple[Any, ...]) -> None:
        if event in ("open", "os.listdir", "os.scandir") and given and isinstance(given[0], str | bytes):
            path = os.path.realpath(os.fsdecode(given[0]))
            if any(path == folder or path.startswith(folder + os.sep) for folder in folders):
                raise PermissionError(f"{path} is not for submissions")

    sys.addaudithook(refuse)


def cap_memory(most: int) -> None:
    """Limits the address space of this process, where the system can."""
    if LINUX:
        import resource

        _cap(resource.RLIMIT_AS, most)


def _cap(kind: int, most: int) -> None:
    import resource

    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(kind, (most, most))


def _become(guest: int) -> None:
    """From root to a user that owns nothing; what is left is to read, where Python lies where only root can."""
    hidden = not all(os.stat(folder).st_mode & 0o001 for folder in Path(os.__file__).resolve().parents)
    with suppress(OSError):  # a root without the power to change its user, as some containers have it
        os.setgroups([])
        if hidden:
            prctl(KEEPCAPS, 1)
        os.setgid(guest)
        os.setuid(guest)
        if hidden and LINUX:
            head = (ctypes.c_uint32 * 2)(CAPABILITIES_V3, 0)
            sets = (ctypes.c_uint32 * 6)(DAC_READ_SEARCH, DAC_READ_SEARCH, 0, 0, 0, 0)
            ctypes.CDLL(None).capset(head, sets)


def _status(pid: str, *fields: str) -> list[int]:
    try:
        lines = Path("/proc", pid, "status").read_text(errors="replace").splitlines()
    except OSError:  # it has ended
        return []
    found = {line.partition(":")[0]: line.split()[1:2] for line in lines}
    return [int(found[field][0]) for field in fields] if all(found.get(field) for field in fields) else []


def _processes() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()] if LINUX else []


def _tasks_of(user: int) -> int:
    """Threads that a user has: the kernel's limit counts them all."""
    rows = [_status(pid, "Uid", "Threads") for pid in _processes()]
    return max(1, sum(row[1] for row in rows if row and row[0] == user))


def end_all(group: int, alone: bool) -> None:
    """Kills what is left of a run, wherever it went, and collects it. `alone`: nothing else is in this sandbox."""
    while True:
        if alone:
            with suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)  # everything but ourselves and the first process, in one stroke
        else:
            for pid in [-group, *_descendants(os.getpid())]:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid in _processes():
        for parent in _status(pid, "PPid"):
            children.setdefault(parent, []).append(int(pid))
    found: list[int] = []
    to_visit = [root]
    while to_visit:
        below = children.get(to_visit.pop(), [])
        found += below
        to_visit += below
    return found
