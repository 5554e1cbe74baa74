"""The system call filter: its numbers against libseccomp's, and its program run by a second interpreter."""

from __future__ import annotations

import ctypes
import ctypes.util
import subprocess
import sys
from errno import ENOSYS, EPERM
from struct import iter_unpack, unpack

import pytest

from puzzles.sandbox.visible_files import INSTALL_ROOT
from puzzles.sandbox.worker import seccomp

MACHINES = list(seccomp.ARCHITECTURES)
PID = 4711
ALLOWED, ASKED = "allowed", "asked"
CLOCKS = ("clock_gettime", "clock_getres", "clock_nanosleep")


def rows() -> list[list[str]]:
    """Every name of the tables, with its numbers."""
    tables = (*seccomp.ALLOWED.values(), seccomp.ABSENT, seccomp.CHANGES, seccomp.CLONE, seccomp.FORKS)
    return [row.split(":") for row in (*" ".join(tables).split(), *(check.name for check in seccomp.checks(PID)))]


def number(name: str, machine: str) -> int:
    return next(int(row[MACHINES.index(machine) + 1]) for row in rows() if row[0] == name)


def answer(
    machine: str,
    call: int,
    *arguments: int,
    new_tasks: int = seccomp.ALLOW,
) -> object:
    """What the filter's program answers: an interpreter of the few instructions of classic BPF that it uses."""
    words = {0: call, 4: seccomp.ARCHITECTURES[machine][0]}
    words |= {16 + 8 * at: value & 0xFFFFFFFF for at, value in enumerate(arguments)}
    code = list(iter_unpack("<HBBI", seccomp.program(machine, PID, new_tasks)))
    at = value = 0
    while True:
        operation, if_true, if_false, given = code[at]
        at += 1
        match operation:
            case 0x20:
                value = words.get(given, 0)
            case 0x54:
                value &= given
            case 0x05:
                at += given
            case 0x15:
                at += if_true if value == given else if_false
            case 0x35:
                at += if_true if value >= given else if_false
            case 0x06:
                found = {0x7FFF0000: ALLOWED, 0x7FC00000: ASKED, 0x50000 | EPERM: EPERM, 0x50000 | ENOSYS: ENOSYS}
                return found[given]
            case _:
                raise AssertionError(operation)


@pytest.mark.parametrize("machine", MACHINES)
def test_numbers_are_those_of_libseccomp(machine: str) -> None:
    name = ctypes.util.find_library("seccomp")
    if name is None:
        pytest.skip("there is no libseccomp to compare with")
    resolve = ctypes.CDLL(name).seccomp_syscall_resolve_name_arch
    resolve.argtypes = [ctypes.c_uint32, ctypes.c_char_p]
    for row in rows():
        found = resolve(seccomp.ARCHITECTURES[machine][0], row[0].encode())
        assert found == (int(row[MACHINES.index(machine) + 1] or -1)) or (
            found < 0 and not row[MACHINES.index(machine) + 1]
        ), row


def numbers(machine: str, *tables: str) -> set[int]:
    return {int(number) for row in " ".join(tables).split() if (number := row.split(":")[MACHINES.index(machine) + 1])}


@pytest.mark.parametrize("machine", MACHINES)
def test_every_call_that_is_not_in_the_table_is_refused(machine: str) -> None:
    allowed = numbers(machine, *seccomp.ALLOWED.values(), seccomp.FORKS)
    absent = numbers(machine, seccomp.ABSENT)
    checked = numbers(machine, *(check.name for check in seccomp.checks(PID)))
    assert not checked & allowed
    for call in set(range(seccomp.FIRST_UNKNOWN)) - checked:
        expected = ALLOWED if call in allowed else ENOSYS if call in absent else EPERM
        assert answer(machine, call) == expected, call
    for unknown in (seccomp.FIRST_UNKNOWN, 10_000, 0x40000000 | 41):  # the last is of the x32 interface
        assert answer(machine, unknown) == ENOSYS


@pytest.mark.skipif(not seccomp.is_available(), reason="there is no filter for this system")
def test_the_kernel_refuses_every_other_call() -> None:
    """Each is made with arguments of 0 by a process under the filter, which goes on."""
    here = seccomp.machine()
    checked = numbers(here, *(check.name for check in seccomp.checks(PID)))
    kept = checked | numbers(here, *seccomp.ALLOWED.values(), seccomp.FORKS)
    kept |= {335, 336}  # uretprobe and uprobe of x86-64, which kernels answer with a signal before they ask a filter
    code = f"""
import ctypes, os
from puzzles.sandbox.worker import os_limits, seccomp
os_limits.prctl(os_limits.NO_NEW_PRIVILEGES, 1)
seccomp.can_ask = lambda: False
seccomp.restrict_self()
libc = ctypes.CDLL(None, use_errno=True)
passed = [n for n in range(600) if n not in {sorted(kept)} and libc.syscall(n, 0, 0, 0, 0, 0, 0) != -1]
assert not passed, passed
assert ctypes.get_errno() == {ENOSYS}
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=INSTALL_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.sampled(60)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("clone", (17,), ALLOWED),
        ("clone", (0x3D0F00,), EPERM),  # a thread of glibc's
        *(("clone", (flag | 17,), EPERM) for flag in (0x20000, *(1 << bit for bit in range(25, 31)))),
        ("socketpair", (1, 0o2000001), ALLOWED),
        ("socketpair", (1, 2), EPERM),
        ("socketpair", (1, 5), EPERM),
        ("socketpair", (2, 1), EPERM),
        ("kill", (PID, 9), ALLOWED),
        ("kill", (0, 9), EPERM),
        ("kill", (-1, 9), EPERM),
        ("kill", (1, 9), EPERM),
        ("tgkill", (PID, PID), ALLOWED),
        ("tgkill", (PID + 1, PID), EPERM),
        ("prlimit64", (0,), ALLOWED),
        ("prlimit64", (PID + 1,), EPERM),
        ("fcntl", (0, 1), ALLOWED),
        ("fcntl", (0, 8), EPERM),
        ("fcntl", (0, 10), EPERM),
        *(("fcntl", (0, request), EPERM) for request in (5, 6, 7, 36, 37, 38, 1024, 1026, 1031, 1032)),
        *(("fcntl", (0, request), ALLOWED) for request in (0, 2, 3, 4, 1030)),
        ("ioctl", (0, 0x5401), ALLOWED),
        ("ioctl", (0, 0x5412), EPERM),
        ("prctl", (15,), ALLOWED),
        ("prctl", (1,), EPERM),
        ("prctl", (4,), EPERM),
        ("prctl", (36,), EPERM),
        ("openat", (0, 0, 0o1001), ALLOWED),
        ("openat", (0, 0, 0o1002), ALLOWED),
        ("openat", (0, 0, 0o2000000), ALLOWED),
        ("openat", (0, 0, 0o1000), EPERM),
        ("openat", (0, 0, 0o2001000), EPERM),
        ("preadv2", (0, 0, 0, 0, 0, 2), ALLOWED),
        ("preadv2", (0, 0, 0, 0, 0, 8), EPERM),  # only what is in memory
        ("sched_getaffinity", (0,), ALLOWED),
        ("sched_getaffinity", (PID,), ALLOWED),
        ("sched_getaffinity", (PID + 1,), EPERM),
        *((name, (clock,), ALLOWED) for name in CLOCKS for clock in (0, 1, 2, 3, 11, -2, -6)),
        *((name, (~(PID + 1) << 3 | 2,), EPERM) for name in CLOCKS),  # the clock of another process
        *(("futex", (0, operation), ALLOWED) for operation in (0, 9, 128, 129, 131, 256 | 9)),
        *(("futex", (0, operation), EPERM) for operation in (1, 3, 4, 5, 10, 256 | 1)),
    ],
)
def test_what_depends_on_arguments(machine: str, name: str, arguments: tuple[int, ...], expected: object) -> None:
    assert answer(machine, number(name, machine), *arguments) == expected


@pytest.mark.parametrize("machine", MACHINES)
def test_a_template_has_the_process_in_whole_operands_only(machine: str) -> None:
    code = seccomp.template(machine, seccomp.ASK)
    (anybody,) = unpack("<I", seccomp.ANYBODY)
    operands = sum(given == anybody for _, _, _, given in iter_unpack("<HBBI", code))
    assert operands == code.count(seccomp.ANYBODY) > 0
    assert seccomp.ANYBODY not in seccomp.program(machine, PID)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_supervisor_is_asked_about_new_tasks_only(machine: str) -> None:
    clone = number("clone", machine)
    assert answer(machine, clone, 17, new_tasks=seccomp.ASK) == ASKED
    assert answer(machine, clone, 0x10000011, new_tasks=seccomp.ASK) == EPERM
    assert answer(machine, number("openat", machine), new_tasks=seccomp.ASK) == ALLOWED


def test_another_processors_calls_do_not_exist() -> None:
    """On x86-64 a program can also make the system calls of the 32-bit processor, which have other numbers."""
    code = list(iter_unpack("<HBBI", seccomp.program("x86_64", PID)))
    assert code[:3] == [(0x20, 0, 0, 4), (0x15, 1, 0, 0xC000003E), (0x06, 0, 0, 0x50000 | ENOSYS)]


@pytest.mark.skipif(not seccomp.is_available(), reason="there is no filter for this system")
def test_without_a_supervisor_to_ask_the_system_counts_tasks() -> None:
    """In a process of its own, because a filter cannot be removed."""
    code = """
import os, resource, socket
from puzzles.sandbox.worker import os_limits, seccomp
seccomp.can_ask = lambda: False
limits = {"files": 1 << 20, "seconds": 5, "processes": 3, "memory": 1 << 30}
if os.fork() == 0:
    assert os_limits.confine(limits, 61_184, os.getppid(), os_limits.VisibleFiles()) == (False, -1)
    try: socket.socket()
    except PermissionError: pass
    else: os._exit(3)
    os._exit(0 if 3 <= resource.getrlimit(resource.RLIMIT_NPROC)[0] < 1 << 20 else 4)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=INSTALL_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_other_systems_have_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp, "machine", lambda: "riscv64")
    assert not seccomp.is_available()
    assert seccomp.restrict_self() == -1
