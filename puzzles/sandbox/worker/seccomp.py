"""Denies this process system calls that no solution needs, by the Linux kernel's seccomp filter; for good.

Landlock decides on files by their paths. This filter decides on everything else by number: shared memory and message
queues, which outlive a run; namespaces, mounts and anonymous files, which evade the limits; sockets; other processes.
Prior art: the default profiles of Docker and systemd. See seccomp(2).
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from errno import ENOSYS, EPERM
from functools import cache
from struct import pack, unpack
from typing import NamedTuple

from .libc import libc

ARCHITECTURES = {"x86_64": (0xC000003E, 317), "aarch64": (0xC00000B7, 277)}
"""By machine: its number in linux/audit.h, and that of the system call `seccomp`."""

FIRST_UNKNOWN = 463
"""System calls from this number on are newer than this table. They do not exist for a run."""

DENIED = {
    "System V and POSIX memory, queues and semaphores, and keys: they outlive a run": (
        "shmget:29:194 shmat:30:196 shmctl:31:195 msgget:68:186 msgsnd:69:189 msgrcv:70:188 msgctl:71:187 "
        "semget:64:190 semop:65:193 semctl:66:191 semtimedop:220:192 mq_open:240:180 mq_unlink:241:181 "
        "add_key:248:217 request_key:249:218 keyctl:250:219"
    ),
    "Namespaces and mounts: they come with new limits": (
        "unshare:272:97 setns:308:268 mount:165:40 umount2:166:39 pivot_root:155:41 chroot:161:51 open_tree:428:428 "
        "move_mount:429:429 fsopen:430:430 fsconfig:431:431 fsmount:432:432 fspick:433:433 mount_setattr:442:442"
    ),
    "Files without a name: no limit counts them": "memfd_create:319:279 memfd_secret:447:447",
    "Other processes": (
        "ptrace:101:117 process_vm_readv:310:270 process_vm_writev:311:271 process_madvise:440:440 "
        "process_mrelease:448:448 kcmp:312:272 pidfd_getfd:438:438 pidfd_send_signal:424:424 rt_sigqueueinfo:129:138 "
        "rt_tgsigqueueinfo:297:240 setpriority:141:140 ioprio_set:251:30 migrate_pages:256:238 move_pages:279:239 "
        "capget:125:90"
    ),
    "Attributes of files: no limit counts them": (
        "setxattr:188:5 lsetxattr:189:6 fsetxattr:190:7 removexattr:197:14 lremovexattr:198:15 fremovexattr:199:16"
    ),
    "What the kernel keeps in memory of files that others read: runs could drop it, and leave messages by it": (
        "fadvise64:221:223 readahead:187:213 cachestat:451:451 mincore:27:232"
    ),
    "What all processes of a user, or of the machine, share in number: a run could count what another has taken": (
        "timer_create:222:107 sysinfo:99:179 futex_waitv:449:449 futex_wake:454:454 "
        "futex_wait:455:455 futex_requeue:456:456"
    ),
    "Network": "socket:41:198 connect:42:203 bind:49:200 listen:50:201 accept:43:202 accept4:288:242",
    "The kernel itself": (
        "bpf:321:280 perf_event_open:298:241 userfaultfd:323:282 personality:135:92 inotify_init:253: "
        "inotify_init1:294:26 fanotify_init:300:262 name_to_handle_at:303:264 open_by_handle_at:304:265 "
        "lookup_dcookie:212:18 syslog:103:116 flock:73:32 quotactl:179:60 quotactl_fd:443:443 sync:162:81 "
        "syncfs:306:267"
    ),
}
"""Answered with EPERM: each name with its numbers on x86-64 and aarch64."""

ABSENT = (
    "clone3:435:435 openat2:437:437 pidfd_open:434:434 io_setup:206:0 io_uring_setup:425:425 io_uring_enter:426:426 "
    "io_uring_register:427:427"
)
"""Answered with ENOSYS, as on an older kernel: programs have another way then, whose arguments a filter can see."""

CHANGES = (
    "chmod:90: fchmod:91:52 fchmodat:268:53 fchmodat2:452:452 chown:92: lchown:94: fchown:93:55 fchownat:260:54 "
    "utime:132: utimes:235: futimesat:261: utimensat:280:88 truncate:76:45"
)
"""Modes, owners and times of files. Landlock lets a run change them on every file of its user, so they are denied
where a run sees files of others."""

CLONE, FORKS = "clone:56:220", "fork:57: vfork:58:"
"""These start processes and threads."""

NEW_NAMESPACES = 0x7E020000
"""All of CLONE_NEW*."""

IF_IN_MEMORY = 8
"""RWF_NOWAIT: to read only what the kernel keeps in memory, as `cachestat` shows it."""

TRUNCATE, ACCESS = 0o1000, 0o3
"""From asm-generic/fcntl.h: O_TRUNC, and O_ACCMODE, of which 0 is reading."""


LOCKS = (5, 6, 7, 36, 37, 38)
"""F_GETLK to F_OFD_SETLKW. A lock needs no leave to write: one on a file that everybody may read stops others, and is
seen by other runs."""


OWN_CLOCKS = (*range(12), 0xFFFFFFFE, 0xFFFFFFFA)
"""The system's clocks, and those of this process and thread by the number that means the caller. Others name a
process."""

CLOCKS = "clock_gettime:228:113 clock_getres:229:114 clock_nanosleep:230:115"

SHARED_WAKES = (1, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13)
"""Operations on a futex, without the flag that keeps it to one process, except waiting: the end of a thread is waited
for in that way, and the kernel wakes those who wait."""


class ArgumentCheck(NamedTuple):
    """A check of one argument: after masking it has to be in `only`, or must not be in `never`."""

    name: str
    argument: int
    only: Sequence[int] = ()
    never: Sequence[int] = ()
    mask: int = 0xFFFFFFFF


def checks(pid: int) -> list[ArgumentCheck]:
    """What process `pid` may call with certain arguments only."""
    return [
        ArgumentCheck(CLONE, 0, only=(0,), mask=NEW_NAMESPACES),
        ArgumentCheck("socketpair:53:199", 0, only=(1,)),  # AF_UNIX: every event loop has one
        ArgumentCheck("socketpair:53:199", 1, only=(1,), mask=0xF),  # SOCK_STREAM: others can be sent to any address
        ArgumentCheck("kill:62:129", 0, only=(pid,)),  # its group would be all devices of a class
        ArgumentCheck("tkill:200:130", 0, only=(pid,)),
        ArgumentCheck("tgkill:234:131", 0, only=(pid,)),
        *(
            ArgumentCheck(name, 0, only=(pid, 0))
            for name in "prlimit64:302:261 sched_setaffinity:203:122 sched_setscheduler:144:119 sched_setparam:142:118 "
            "sched_setattr:314:274 sched_getaffinity:204:123 sched_getscheduler:145:120 sched_getparam:143:121 "
            "sched_getattr:315:275 sched_rr_get_interval:148:127 getpgid:121:155 getsid:124:156 "
            "get_robust_list:274:100".split()
        ),
        ArgumentCheck("fcntl:72:25", 1, never=(8, 10, 15)),  # F_SETOWN, F_SETSIG, F_SETOWN_EX: signals to others
        ArgumentCheck("fcntl:72:25", 1, never=(*LOCKS, 1024, 1026, 1031)),  # also F_SETLEASE, F_NOTIFY and F_SETPIPE_SZ
        *(ArgumentCheck(name, 1, only=(pid, 0)) for name in ("getpriority:140:141", "ioprio_get:252:31")),
        *(ArgumentCheck(name, 0, only=OWN_CLOCKS) for name in CLOCKS.split()),
        ArgumentCheck("futex:202:98", 1, never=SHARED_WAKES, mask=0xFF),
        ArgumentCheck("ioctl:16:29", 1, never=(0x8901, 0x8902, 0x5412, 0x541C)),  # the same, and keys into a terminal
        ArgumentCheck("preadv2:327:286", 5, only=(0,), mask=IF_IN_MEMORY),
        ArgumentCheck("prctl:157:167", 0, never=(1, 4, 0x59616D61)),  # outliving the parent, being traced
        ArgumentCheck("open:2:", 1, never=(TRUNCATE,), mask=TRUNCATE | ACCESS),  # emptying what may only be read
        ArgumentCheck("openat:257:56", 2, never=(TRUNCATE,), mask=TRUNCATE | ACCESS),
    ]


def is_available() -> bool:
    """True if this kernel and processor have the filter."""
    return sys.platform == "linux" and _has_filter(machine())


def machine() -> str:
    """This processor's name, as in `ARCHITECTURES`."""
    return os.uname().machine  # the module `platform` would say the same, and is slow to import


@cache
def _has_filter(here: str) -> bool:
    with suppress(OSError, AttributeError):
        return here in ARCHITECTURES and _seccomp(ASK_ACTION, 0, ctypes.byref(ctypes.c_uint32(ERRNO))) == 0
    return False


def can_ask() -> bool:
    """True if this kernel lets another process answer a system call, and then go on: since 5.5."""
    return is_available() and _release() >= [5, 5]


@cache
def _release() -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", os.uname().release)[:2]]


def restrict_self(sees_others: bool) -> int:
    """Installs the filter in this process and its descendants, where there is one.

    With `sees_others`, modes and times of files cannot be changed. Returns a listener, which another process has to
    answer when this one starts a process or thread; -1 if there is none. Needs `no_new_privs`.
    """
    if not is_available():
        return -1
    listener = _install(program(machine(), os.getpid(), sees_others, ASK), LISTENER) if can_ask() else -1
    if listener < 0:
        _install(program(machine(), os.getpid(), sees_others, ALLOW), ALL_THREADS)
    return listener


def restrict_device() -> None:
    """Adds a filter to a process that was forked under one, which allows calls about its parent's number."""
    if is_available():
        _install(program(machine(), os.getpid(), True), ALL_THREADS)


def _install(code: bytes, flags: int) -> int:
    buffer = ctypes.create_string_buffer(code, len(code))
    return _seccomp(SET_FILTER, flags, ctypes.byref(FilterProgram(len(code) // 8, ctypes.addressof(buffer))))


# --- The program that the kernel runs at each system call ---

LOAD, AND, EQUAL, AT_LEAST, JUMP, RETURN = 0x20, 0x54, 0x15, 0x35, 0x05, 0x06
"""Instructions of the classic BPF."""

NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16
"""Where these are in `struct seccomp_data`; each argument has 8 bytes, the low half first."""

ALLOW, ASK, ERRNO = 0x7FFF0000, 0x7FC00000, 0x00050000

SET_FILTER, ASK_ACTION = 1, 2
ALL_THREADS, LISTENER = 1, 8


ANYBODY = b"\xff\xee\xdd\xcc"
"""Stands for the id of a process in a template. No instruction, system call or other value has these bytes."""


class FilterProgram(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p)]


def program(machine: str, pid: int, sees_others: bool, new_tasks: int = ALLOW) -> bytes:
    """The filter for process `pid` on a machine of this kind. `new_tasks` answers calls that start processes."""
    return template(machine, sees_others, new_tasks).replace(ANYBODY, pack("<I", pid))


@cache
def template(machine: str, sees_others: bool, new_tasks: int) -> bytes:
    """The filter with `ANYBODY` in place of the process: computed once for all processes that are forked."""
    column = _column(machine)
    code = denials(machine, sees_others)
    by_name: dict[str, bytes] = {}
    for check in checks(*unpack("<I", ANYBODY)):
        by_name[check.name] = by_name.get(check.name, b"") + _test(check)
    for name, tests in by_name.items():
        code += _on_call(name, column, tests + _step(RETURN, new_tasks if name == CLONE else ALLOW))
    for name in FORKS.split():
        code += _on_call(name, column, _step(RETURN, new_tasks))
    return code + _step(RETURN, ALLOW)


def denials(machine: str, sees_others: bool) -> bytes:
    """The part of the filter that is the same for every process: what is denied with any arguments."""
    denied = " ".join((*DENIED.values(), CHANGES if sees_others else ""))
    code = _load(ARCHITECTURE) + _step(EQUAL, ARCHITECTURES[machine][0], 1, 0) + _refuse(ENOSYS)
    code += _load(NUMBER) + _step(AT_LEAST, FIRST_UNKNOWN, 0, 1) + _refuse(ENOSYS)
    for names, error in ((denied, EPERM), (ABSENT, ENOSYS)):
        for name in names.split():
            code += _on_call(name, _column(machine), _refuse(error))
    return code


def _column(machine: str) -> int:
    return list(ARCHITECTURES).index(machine)


def _on_call(name: str, column: int, then: bytes) -> bytes:
    """Instructions for one system call; they end with an answer. None if this machine does not have it."""
    number = name.split(":")[column + 1]
    return _step(EQUAL, int(number), 0, len(then) // 8) + then if number else b""


def _test(check: ArgumentCheck) -> bytes:
    """Instructions that refuse a call, or go on behind them."""
    code = _load(ARGUMENTS + 8 * check.argument) + _step(AND, check.mask)
    values = check.only or check.never
    for at, value in enumerate(values):
        code += _step(EQUAL, value, len(values) - at, 0)
    return code + (_step(JUMP, 1) if check.never else b"") + _refuse(EPERM)


def _load(offset: int) -> bytes:
    return _step(LOAD, offset)


def _refuse(error: int) -> bytes:
    return _step(RETURN, ERRNO | error)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return pack("<HBBI", code, if_true, if_false, value)


def _seccomp(operation: int, flags: int, argument: object) -> int:
    number = ARCHITECTURES[machine()][1]
    return int(libc().syscall(number, operation, flags, argument))
