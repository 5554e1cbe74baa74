"""OS confinement of a worker (prctl, resource limits, change of user, Landlock) and cleanup of its descendants.

A worker is confined before it touches a submission, for good, and all that it starts inherits that. Root becomes a user
that owns nothing. What the kernel can limit for a process only is added up for a run elsewhere, by what is read here
from /proc. After a run, every descendant is killed, also outside of its process group: the supervisor adopts orphans,
so none can hide. Without Landlock, an audit hook of Python refuses hidden files, which only code that makes system
calls without Python gets past.

Rejected: namespaces for processes and files, which need a privilege or a setuid program.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from . import landlock, seccomp
from .landlock import libc

LINUX = sys.platform == "linux"
SIGKILL = 9
"""Not taken from `signal`: Windows, which lacks it, also loads this module."""

PDEATHSIG, DUMPABLE, KEEPCAPS, NO_NEW_PRIVILEGES, SUBREAPER = 1, 4, 8, 38, 36
"""From linux/prctl.h."""

DAC_READ_SEARCH = 1 << 2
CAPABILITIES_V3 = 0x20080522
"""From linux/capability.h."""

MAX_OPEN_FILES = 64

NO_CORE = 1
"""Byte of a core dump. With 0, a crash of a program that a run starts would still start the handler of systems that
have one, outside of every limit; with 1 the kernel
starts neither a file nor a handler. See core(5), and `cprm.limit == 1` in the kernel's fs/coredump.c."""

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty")
"""Files that everybody may write to."""


NEW_MOUNTS, NO_SUID, NO_DEVICES, PRIVATE, DETACH = 0x20000, 2, 4, 1 << 18 | 1 << 14, 2
"""From linux/sched.h and linux/mount.h: CLONE_NEWNS, and flags of mount and umount2."""

MAX_INODES = 10_000
"""Files and folders of a run that are counted, and that a file system for it can have."""

OWN_FACTS = "/proc/self"
"""Each process opens this folder itself: folders of others show their command lines."""


def prctl(option: int, value: int) -> None:
    if LINUX:
        libc().prctl(option, value, 0, 0, 0)


def protect_process() -> None:
    """Protects this process from its descendants, which can neither trace, read nor interrupt it, and makes it adopt
    those whose parents end."""
    prctl(DUMPABLE, 0)
    prctl(SUBREAPER, 1)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGQUIT", "SIGPIPE", "SIGTSTP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)


def prepare() -> None:
    """Computes once what `confine` needs in every worker that is forked from this process."""
    import resource  # noqa: F401

    _needs_to_read()
    if seccomp.can_ask() or seccomp.is_available():
        for answer in (seccomp.ASK, seccomp.ALLOW):
            seccomp.template(seccomp.machine(), answer)


class VisibleFiles(NamedTuple):
    """What workers may list and read, for `confine`."""

    ruleset: int = -1
    """Landlock's, with all that is the same for every worker; -1 if it allows everything."""
    own: tuple[str, ...] = ()
    """Paths that each worker has to open itself."""


def visible_files(readable: Sequence[Sequence[str]]) -> VisibleFiles:
    """What workers of this process may see: `readable` are paths to list and paths to read; none: everything.

    Opened by this process, which may be root, so a path may be in it that the worker's user cannot reach. The rule is
    no leave then: Landlock only takes away, and the kernel asks for the user's rights as well.
    """
    if not readable:
        return VisibleFiles()
    to_list, to_read = readable
    ruleset = landlock.ruleset(to_list, [path for path in to_read if path != OWN_FACTS], DEVICES)
    return VisibleFiles(ruleset, (OWN_FACTS,) if OWN_FACTS in to_read else ())


def confine(limits: Mapping[str, Any], uid: int, parent: int, files: VisibleFiles) -> tuple[bool, int]:
    """Confines this process, a child of `parent`, and all that it will start to its limits; for good. Root becomes
    user `uid`.

    `limits` are a run's; "processor" may set the whole seconds of processor time after which the kernel sends
    SIGXCPU to a process. Nothing can be read but `files`, and only the present folder can be written to, if the kernel
    has Landlock. Returns True if it does, and the listener of the system call filter.
    """
    import resource

    os.setsid()
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGQUIT", "SIGTSTP", "SIGCHLD"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    _be_killed_first()
    if os.getuid() == 0:
        _become(uid)
    end_with_parent(parent)  # after a change of user, which would undo it
    _cap(resource.RLIMIT_CORE, NO_CORE)
    _cap(resource.RLIMIT_FSIZE, limits["files"])
    _cap(resource.RLIMIT_NOFILE, MAX_OPEN_FILES)
    _cap(resource.RLIMIT_CPU, limits.get("processor", int(limits["seconds"] * limits["processes"]) + 5), last=1)
    if LINUX:
        _cap(resource.RLIMIT_AS, limits["memory"])
        _cap(resource.RLIMIT_SIGPENDING, 0)  # the kernel counts queued signals for each user, so runs could see others'
    prctl(NO_NEW_PRIVILEGES, 1)
    listener = seccomp.restrict_self()
    if LINUX and listener < 0:
        _cap(resource.RLIMIT_NPROC, _tasks_of(os.getuid()) + limits["processes"] - 1)
    return landlock.restrict_to(files.ruleset, files.own, ["."]), listener


def end_with_parent(parent: int, by: int = SIGKILL) -> None:
    """Sends this process a signal when its parent ends; at once, if it has."""
    prctl(PDEATHSIG, by)
    if os.getppid() != parent:
        os.kill(os.getpid(), by)


def _be_killed_first() -> None:
    """If memory runs out, the kernel should end this process rather than its server, which blames nobody."""
    with suppress(OSError):
        file = os.open("/proc/self/oom_score_adj", os.O_WRONLY)  # only root may, for this process is protected
        os.write(file, b"1000")
        os.close(file)


def deny_paths(folders: Sequence[str]) -> None:
    """Makes Python refuse to open or list what lies in these folders, by an audit hook, for systems where the kernel
    cannot. Code that makes system calls without Python gets past it."""

    def refuse(event: str, given: tuple[Any, ...]) -> None:
        if event in ("open", "os.listdir", "os.scandir") and given and isinstance(given[0], str | bytes):
            path = os.path.realpath(os.fsdecode(given[0]))
            if any(path == folder or path.startswith(folder + os.sep) for folder in folders):
                raise PermissionError(f"{path} is not for submissions")

    sys.addaudithook(refuse)


def _cap(kind: int, most: int, last: int = 0) -> None:
    """Limits a resource for good. The kernel sends a signal at `most`; with `last`, so much later it kills."""
    import resource

    _, hard = resource.getrlimit(kind)
    last += most
    if hard != resource.RLIM_INFINITY:
        most, last = min(most, hard), min(last, hard)
    resource.setrlimit(kind, (most, last))


def _become(uid: int) -> None:
    """Changes from root to a user that owns nothing. It keeps the capability to read, if Python, its packages or the
    game lie where only root can read, as below /root; Landlock still decides on what."""
    unreadable = _needs_to_read()
    with suppress(OSError):  # a root without the power to change its user, as some containers have it
        os.setgroups([])
        if unreadable:
            prctl(KEEPCAPS, 1)
        os.setgid(uid)
        os.setuid(uid)
        if unreadable and LINUX:
            head = (ctypes.c_uint32 * 2)(CAPABILITIES_V3, 0)
            sets = (ctypes.c_uint32 * 6)(DAC_READ_SEARCH, DAC_READ_SEARCH, 0, 0, 0, 0)
            libc().capset(head, sets)


@cache
def _needs_to_read() -> bool:
    """True if not everybody may enter a folder above Python, its packages or the game."""
    folders = {
        folder for path in (os.__file__, sys.prefix, __file__) for folder in Path(os.path.realpath(path)).parents
    }
    return not all(os.stat(folder).st_mode & 0o001 for folder in folders)


def mount_files(folder: str, most: int, uid: int) -> bool:
    """Mounts a file system of `most` bytes on a folder, which user `uid` owns; for this process and its descendants.
    False where that takes more rights than this process has."""
    options = f"size={most},nr_inodes={MAX_INODES},mode=700,uid={uid},gid={uid}".encode()
    return bool(
        LINUX
        and os.getuid() == 0
        and _private_mounts()
        and libc().mount(b"files", folder.encode(), b"tmpfs", NO_SUID | NO_DEVICES, options) == 0
    )


@cache
def _private_mounts() -> bool:
    """Gives this process a view of mounts of its own. True if it has one."""
    return bool(libc().unshare(NEW_MOUNTS) == 0 and libc().mount(b"", b"/", None, PRIVATE, None) == 0)


def unmount_files(folder: str) -> None:
    libc().umount2(folder.encode(), DETACH)


def file_bytes(folder: str) -> int:
    """What the files in a folder take, without those that have no name any more."""
    total, waiting, seen = 0, [folder], 0
    while waiting and seen < MAX_INODES:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                seen += 1
                with suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
    return total


def memory_below() -> int:
    """Bytes of memory that this process's descendants use and do not share with it. What they share with each other
    counts for each."""
    shared = sum(_status("self", "RssAnon"))
    rows = [_status(str(pid), "RssAnon", "RssShmem") for pid in _descendants(os.getpid())]
    return sum(max(0, sum(row) - shared) for row in rows) << 10


def _status(pid: str, *fields: str) -> list[int]:
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:  # it has ended
        return []
    found = {line.partition(":")[0]: line.split()[1:2] for line in lines}
    return [int(found[field][0]) for field in fields] if all(found.get(field) for field in fields) else []


def _processes() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()] if LINUX else []


def _tasks_of(user: int) -> int:
    """Number of threads of a user: the kernel's limit counts them all."""
    rows = [_status(pid, "Uid", "Threads") for pid in _processes()]
    return max(1, sum(row[1] for row in rows if row and row[0] == user))


def tasks_below() -> int:
    """Number of processes and threads that this process and its descendants have started and not ended."""
    return sum(threads for pid in _descendants(os.getpid()) for threads in _status(str(pid), "Threads"))


def end_all(group: int) -> None:
    """Kills what is left of a run, also outside its process group, and waits for it."""
    while True:
        if group:
            _kill(-group)
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:  # something is left, which is rare
                for pid in _descendants(os.getpid()):
                    _kill(pid)
                os.waitpid(-1, 0)
        except ChildProcessError:  # also orphans would be children of this process
            return


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, SIGKILL)


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
