"""Allows this process the system calls that runs need, by the Linux kernel's seccomp filter; for good.

Landlock decides on files by their paths. This filter decides on everything else by number, and denies what is not in
its table: shared memory and message queues, which outlive a run; namespaces, mounts and anonymous files, which evade
the limits; sockets; other processes; counts and memory that processes share. The table is what Python, numpy and
programs with files, threads, subprocesses and event loops were seen to call, and what they call with other versions of
the C library or on the other processor. Prior art: the default profiles of Docker and systemd. See seccomp(2).
"""

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

from .landlock import libc

ARCHITECTURES = {"x86_64": (0xC000003E, 317), "aarch64": (0xC00000B7, 277)}
"""By machine: its number in linux/audit.h, and the number of the system call `seccomp`."""

FIRST_UNKNOWN = 463
"""System calls from this number on are newer than this table. They do not exist for a run."""

NAMED_FILES = "Files by name: Landlock decides on which"

ALLOWED = {
    "Memory": (
        "brk:12:214 mmap:9:222 munmap:11:215 mprotect:10:226 mremap:25:216 madvise:28:233 msync:26:227 "
        "membarrier:324:283"
    ),
    "Its own processes, threads and signals": (
        "execve:59:221 wait4:61:260 waitid:247:95 exit:60:93 exit_group:231:94 getpid:39:172 getppid:110:173 "
        "gettid:186:178 set_tid_address:218:96 set_robust_list:273:99 rseq:334:293 arch_prctl:158: sched_yield:24:124 "
        "rt_sigaction:13:134 rt_sigprocmask:14:135 rt_sigreturn:15:139 rt_sigpending:127:136 rt_sigtimedwait:128:137 "
        "rt_sigsuspend:130:133 sigaltstack:131:132 restart_syscall:219:128 pause:34: alarm:37: setitimer:38:103 "
        "getitimer:36:102 setsid:112:157"
    ),
    "Time, and what the process may know of itself": (
        "gettimeofday:96:169 time:201: nanosleep:35:101 times:100:153 getrusage:98:165 getrlimit:97:163 "
        "setrlimit:160:164 getuid:102:174 geteuid:107:175 getgid:104:176 getegid:108:177 getresuid:118:148 "
        "getresgid:120:150 getgroups:115:158 getpgrp:111: uname:63:160 getcpu:309:168 getrandom:318:278 umask:95:166"
    ),
    "Open files": (
        "read:0:63 write:1:64 readv:19:65 writev:20:66 pread64:17:67 pwrite64:18:68 preadv:295:69 pwritev:296:70 "
        "lseek:8:62 close:3:57 close_range:436:436 dup:32:23 dup2:33: dup3:292:24 pipe:22: pipe2:293:59 "
        "eventfd2:290:19 fstat:5:80 ftruncate:77:46 fallocate:285:47 fsync:74:82 fdatasync:75:83 sendfile:40:71 "
        "copy_file_range:326:285 poll:7: ppoll:271:73 select:23: pselect6:270:72 epoll_create:213: "
        "epoll_create1:291:20 epoll_ctl:233:21 epoll_wait:232: epoll_pwait:281:22 epoll_pwait2:441:441"
    ),
    NAMED_FILES: (
        "stat:4: lstat:6: newfstatat:262:79 statx:332:291 access:21: faccessat:269:48 "
        "faccessat2:439:439 getcwd:79:17 chdir:80:49 fchdir:81:50 getdents64:217:61 readlink:89: readlinkat:267:78 "
        "mkdir:83: mkdirat:258:34 rmdir:84: unlink:87: unlinkat:263:35 rename:82: renameat:264:38 renameat2:316:276 "
        "link:86: linkat:265:37 symlink:88: symlinkat:266:36 getxattr:191:8 lgetxattr:192:9 fgetxattr:193:10 "
        "listxattr:194:11 llistxattr:195:12 flistxattr:196:13"
    ),
    "Sockets in pairs": (
        "sendto:44:206 recvfrom:45:207 sendmsg:46:211 recvmsg:47:212 shutdown:48:210 getsockopt:55:209 "
        "setsockopt:54:208 getsockname:51:204 getpeername:52:205"
    ),
    "What confines a process further": (
        "seccomp:317:277 landlock_create_ruleset:444:444 landlock_add_rule:445:445 landlock_restrict_self:446:446"
    ),
}
"""Each name with its numbers on x86-64 and aarch64. Other calls are answered with EPERM."""

ABSENT = (
    "clone3:435:435 openat2:437:437 pidfd_open:434:434 io_setup:206:0 io_uring_setup:425:425 io_uring_enter:426:426 "
    "io_uring_register:427:427"
)
"""Answered with ENOSYS, as on an older kernel: programs have another way then, whose arguments a filter can see."""

CHANGES = (
    "chmod:90: fchmod:91:52 fchmodat:268:53 fchmodat2:452:452 chown:92: lchown:94: fchown:93:55 fchownat:260:54 "
    "utime:132: utimes:235: futimesat:261: utimensat:280:88 truncate:76:45"
)
"""Modes, owners and times of files: Landlock lets a run change them on every file of its user, so they are denied."""

CLONE, FORKS = "clone:56:220", "fork:57: vfork:58:"
"""These start processes, and the first one threads."""

NEW_NAMESPACES, THREAD = 0x7E020000, 0x10000
"""All of CLONE_NEW*; CLONE_THREAD."""

IF_IN_MEMORY = 8
"""RWF_NOWAIT: to read only what the kernel keeps in memory, as `cachestat` shows it."""

TRUNCATE, ACCESS = 0o1000, 0o3
"""From asm-generic/fcntl.h: O_TRUNC, and O_ACCMODE, of which 0 is reading."""

DESCRIPTOR = (0, 1, 2, 3, 4, 1030)
"""What fcntl may do: copy a descriptor, read and set its flags. Locks, leases, watches, owners and sizes of pipes would
be seen by other runs."""

TERMINAL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451, 0x802C542A, 0x40049409)
"""What ioctl may do: ask about a terminal, FIONREAD, FIONBIO, FIOCLEX, FIONCLEX, and FICLONE, which copies a file."""

OWN_FACTS = (3, 15, 16, 21, 23, 38, 0x53564D41)
"""What prctl may do: names, and questions about the process. Others let it outlive its parent, or be traced."""

OWN_CLOCKS = (*range(12), 0xFFFFFFFE, 0xFFFFFFFA)
"""The system's clocks, and the clocks of this process and thread by the number that means the caller. Others name a
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
        ArgumentCheck(CLONE, 0, only=(0,), mask=NEW_NAMESPACES | THREAD),
        ArgumentCheck("socketpair:53:199", 0, only=(1,)),  # AF_UNIX: every event loop has one
        ArgumentCheck("socketpair:53:199", 1, only=(1,), mask=0xF),  # SOCK_STREAM: others can be sent to any address
        ArgumentCheck("kill:62:129", 0, only=(pid,)),
        ArgumentCheck("tkill:200:130", 0, only=(pid,)),
        ArgumentCheck("tgkill:234:131", 0, only=(pid,)),
        ArgumentCheck("prlimit64:302:261", 0, only=(pid, 0)),
        ArgumentCheck("sched_getaffinity:204:123", 0, only=(pid, 0)),
        ArgumentCheck("fcntl:72:25", 1, only=DESCRIPTOR),
        *(ArgumentCheck(name, 0, only=OWN_CLOCKS) for name in CLOCKS.split()),
        ArgumentCheck("futex:202:98", 1, never=SHARED_WAKES, mask=0xFF),
        ArgumentCheck("ioctl:16:29", 1, only=TERMINAL),
        ArgumentCheck("preadv2:327:286", 5, only=(0,), mask=IF_IN_MEMORY),
        ArgumentCheck("prctl:157:167", 0, only=OWN_FACTS),
        ArgumentCheck("open:2:", 1, never=(TRUNCATE,), mask=TRUNCATE | ACCESS),  # emptying what may only be read
        ArgumentCheck("openat:257:56", 2, never=(TRUNCATE,), mask=TRUNCATE | ACCESS),
    ]


def is_available() -> bool:
    return sys.platform == "linux" and _has_filter(machine())


def machine() -> str:
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


def restrict_self() -> int:
    """Installs the filter in this process and its descendants, where there is one.

    Returns a listener, which another process has to answer when this one starts a process; -1 if there is none. Needs
    `no_new_privs`.
    """
    if not is_available():
        return -1
    listener = _install(program(machine(), os.getpid(), ASK), LISTENER) if can_ask() else -1
    if listener < 0:
        _install(program(machine(), os.getpid(), ALLOW), ALL_THREADS)
    return listener


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


def program(machine: str, pid: int, new_tasks: int = ALLOW) -> bytes:
    """The filter for process `pid` on a machine of this kind. `new_tasks` answers calls that start processes."""
    return template(machine, new_tasks).replace(ANYBODY, pack("<I", pid))


@cache
def template(machine: str, new_tasks: int) -> bytes:
    """The filter with `ANYBODY` in place of the process: computed once for all processes that are forked."""
    column = _column(machine)
    code = _load(ARCHITECTURE) + _step(EQUAL, ARCHITECTURES[machine][0], 1, 0) + _refuse(ENOSYS)
    code += _load(NUMBER) + _step(AT_LEAST, FIRST_UNKNOWN, 0, 1) + _refuse(ENOSYS)
    for names, answer in (
        (" ".join(ALLOWED.values()), _step(RETURN, ALLOW)),
        (FORKS, _step(RETURN, new_tasks)),
        (ABSENT, _refuse(ENOSYS)),
    ):
        for name in names.split():
            code += _on_call(name, column, answer)
    by_name: dict[str, bytes] = {}
    for check in checks(*unpack("<I", ANYBODY)):
        by_name[check.name] = by_name.get(check.name, b"") + _test(check)
    for name, tests in by_name.items():
        code += _on_call(name, column, tests + _step(RETURN, new_tasks if name == CLONE else ALLOW))
    return code + _refuse(EPERM)


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
