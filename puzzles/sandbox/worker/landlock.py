"""Restricts this process' access to files, network and other processes by the Linux kernel's Landlock.

Needs no privilege and no program. Prior art: pledge and unveil of OpenBSD. See landlock(7).
"""

import ctypes
import os
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import cache


@cache
def libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""System calls; the same numbers on every processor."""

PATH_BENEATH, ASK_VERSION = 1, 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 1 << 1, 1 << 2, 1 << 3
READ = EXECUTE | READ_FILE | READ_DIR
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | 1 << 14 | 1 << 15
"""Rights that a rule on a file, which is not a folder, may give: those above, truncate, ioctl."""

RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""Number of rights on files by version of the interface; later versions have as many as the last."""

TCP, SCOPES = 0b11, 0b11
"""Binding and connecting, since version 4; abstract sockets and signals to others, since version 6."""


class Ruleset(ctypes.Structure):
    """`struct landlock_ruleset_attr`: rights that are denied unless a rule allows them."""

    _fields_ = [("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class Beneath(ctypes.Structure):
    """`struct landlock_path_beneath_attr`: rights that are allowed at a path and below it."""

    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32)]


def version() -> int:
    """Version of the kernel's interface; 0 if it has none."""
    if sys.platform != "linux":
        return 0
    with suppress(OSError, AttributeError):
        return max(0, int(libc().syscall(CREATE_RULESET, None, 0, ASK_VERSION)))
    return 0


def ruleset(listable: Iterable[str], readable: Iterable[str], writable: Iterable[str]) -> int:
    """What processes that are forked later may list, read and write: a file descriptor; -1 if the kernel has no
    Landlock.

    It decides nothing until `restrict_to` is called with it. A process that runs foreign code must not have it open,
    because it could add rules for others.
    """
    has = version()
    if not has:
        return -1
    rules = Ruleset(_every(has), TCP if has >= 4 else 0, SCOPES if has >= 6 else 0)
    size = 24 if has >= 6 else 16 if has >= 4 else 8
    made = int(libc().syscall(CREATE_RULESET, ctypes.byref(rules), size, 0))
    if made >= 0:
        _allow_all(made, listable, READ_DIR)
        _allow_all(made, readable, READ)
        _allow_all(made, writable, _every(has))
    return max(made, -1)


def restrict_to(made: int, readable: Iterable[str] = (), writable: Iterable[str] = ()) -> bool:
    """Lets this process, and all that it will start, do only what a ruleset and these rules allow; for good. Denies TCP
    and signals to others too, if the kernel is new enough. Returns False if it has no Landlock. Needs `no_new_privs`.
    The ruleset is closed here.

    Other processes may have the same ruleset open. Those that have been restricted by it are not affected by new rules,
    and those that will be get them; so only what ends with this process may be added.
    """
    if made < 0:
        return False
    _allow_all(made, readable, READ)
    _allow_all(made, writable, _every(version()))
    done = bool(libc().syscall(RESTRICT_SELF, made, 0) == 0)
    os.close(made)
    return done


def _every(has: int) -> int:
    """All rights on files that a version of the interface knows."""
    return (1 << RIGHTS.get(has, 16)) - 1


def _allow_all(made: int, places: Iterable[str], rights: int) -> None:
    rights &= _every(version())
    for place in places:
        _allow(made, place, rights)


def _allow(ruleset: int, place: str, rights: int) -> None:
    try:
        opened = os.open(place, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what does not exist needs no rule
    if not stat.S_ISDIR(os.fstat(opened).st_mode):
        rights &= OF_FILES
    rule = Beneath(rights, opened)
    libc().syscall(ADD_RULE, ruleset, PATH_BENEATH, ctypes.byref(rule), 0)
    os.close(opened)
