"""Nothing of one submission reaches the next: no source, no file, no message, no harm; for any user."""

import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import indent

import pytest

from puzzles.sandbox.worker import landlock, seccomp
from puzzles.sandbox.worker.server import MAX_LEFTOVERS
from tests.hostile.schedules import SOLVED
from tests.support.graders import ROOT, Grader, Seen

pytestmark = pytest.mark.skipif(os.name != "posix", reason="hostile code is ended by POSIX means")
needs_landlock = pytest.mark.skipif(not landlock.version(), reason="this kernel has no Landlock")
needs_seccomp = pytest.mark.skipif(not seccomp.is_available(), reason="there is no filter for this system")

Grade = Callable[..., list[Seen]]


@pytest.fixture(scope="module", params=[pytest.param("root", marks=pytest.mark.slow), "ordinary user"])
def grader(request: pytest.FixtureRequest) -> Iterator[Grader]:
    found = Grader(request.param)
    yield found
    found.close()


@pytest.fixture
def grade(grader: Grader) -> Grade:
    """Grades some files, one after the other, with one server."""
    return grader.grade


def solved_after(body: str, imports: str = "os, sys, ctypes, errno, socket, threading, time") -> str:
    """The right solution, after something else."""
    return f"import {imports}\nlibc = ctypes.CDLL(None, use_errno=True)\n" + SOLVED.replace(
        "    return model", indent(body.strip("\n"), "    ") + "\n    return model"
    )


def refuses(*calls: str) -> str:
    """Python that fails unless each of these calls is refused with EPERM or ENOSYS."""
    return "\n".join(
        f"try: result = {call}\nexcept OSError as why: assert why.errno in (errno.EPERM, errno.ENOSYS), why\n"
        f"else: assert result == -1 and ctypes.get_errno() in (errno.EPERM, errno.ENOSYS), ({call!r}, result)"
        for call in calls
    )


EMPTY = solved_after("""
assert os.listdir() == []
try: assert os.listdir("..") == ["run"]
except PermissionError: pass
""")

# --- Sources ---

LOOK = """
def copies(half, backwards):
    # Of a text, given in two parts, so that the search does not find itself.
    found = 0
    for line in open("/proc/self/maps").read().splitlines():
        span, mode, *_, name = line.split()
        if mode[0] == "r" and not name.startswith("[v"):
            begin, end = (int(at, 16) for at in span.split("-"))
            memory = ctypes.string_at(begin, end - begin)
            at = memory.find(half)
            while at >= 0:
                at += len(half)
                found += memory[at : at + len(backwards)][::-1] == backwards
                at = memory.find(half, at)
    return found
"""


def looks_for(marker: str, count: str) -> str:
    half, rest = marker.encode()[:12], marker.encode()[12:]
    return f"seen = copies({half!r}, {rest[::-1]!r})\nassert seen {count}, seen"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="looks for memory in /proc")
def test_no_source_of_an_earlier_student_is_in_memory(grade: Grade) -> None:
    theirs, mine = "the secret of somebody else, 5c51f7", "a text of my own to find, 9e07ab"
    first = f"SECRET = {theirs!r}\n" + SOLVED
    spy = f"MINE = {mine!r}\n" + LOOK + solved_after(looks_for(mine, "> 0") + "\n" + looks_for(theirs, "== 0"))
    unreadable = first + "def broken(:\n"
    found = grade(first, unreadable, first, spy)
    assert found[0].passed()
    assert found[1].reason == "syntax"
    assert found[-1].passed(), found[-1]


# --- Files ---

NESTED = "for _ in range({depth}):\n    os.mkdir('n' * 250)\n    os.chdir('n' * 250)\nopen('f', 'w').close()"
MANY = "for number in range({count}): os.mkdir(str(number))"


@pytest.mark.slow
@pytest.mark.parametrize(
    "leave",
    [
        "os.mkdir('locked')\nopen('locked/f', 'w').close()\nos.mkdir('locked/inner', 0)\nos.symlink('/', 'link')",
        pytest.param("os.mkdir('../beside')", marks=pytest.mark.slow),
        "os.chmod('..', 0)",
        pytest.param("os.chmod('.', 0)\nos.chmod('..', 0)", marks=pytest.mark.slow),
        pytest.param("os.rename('../run', '../gone')\nos.symlink('/usr', '../run')", marks=pytest.mark.slow),
        NESTED.format(depth=30),
        pytest.param(NESTED.format(depth=600), marks=pytest.mark.slow),
        pytest.param(MANY.format(count=1000), marks=pytest.mark.slow),
        MANY.format(count=MAX_LEFTOVERS + 1),
        pytest.param(MANY.format(count=150_000), marks=pytest.mark.slow),
        pytest.param("open('big', 'wb').write(b'x' * (1 << 20))", marks=pytest.mark.slow),
    ],
)
def test_whatever_a_run_leaves_the_next_finds_an_empty_folder(grade: Grade, leave: str) -> None:
    tried = f"try:\n{indent(leave, '    ')}\nexcept OSError as why: print(why)"
    room = solved_after("open('mine', 'wb').write(b'x' * ((1 << 20) - 4096))")
    first, empty, full = grade(solved_after(tried), EMPTY, room, files=1 << 20, seconds=60.0)
    assert first.reason != "lost", first
    assert empty.passed(), empty
    assert full.passed(), full


@pytest.mark.slow
def test_all_files_of_a_run_share_one_limit(grade: Grade) -> None:
    """The rest of the run takes long enough for whoever only looks from time to time."""
    many = "for n in range(200): open(str(n), 'wb').write(b'x' * (1 << 20))\ntime.sleep(60)"
    (found,) = grade(solved_after(many), files=8 << 20, seconds=20.0)
    assert found.reason == "crash", found
    assert "No space left" in found.message or "8,388,608 bytes" in found.message


@pytest.mark.slow
def test_all_processes_of_a_run_share_one_limit_of_memory(grade: Grade) -> None:
    """Each has less than the limit."""
    many = (
        "for _ in range(3):\n    if os.fork() == 0: break\nkeep = bytearray(os.urandom(1 << 20) * 150)\ntime.sleep(60)"
    )
    (found,) = grade(solved_after(many), memory=400 << 20, seconds=20.0)
    assert found.reason == "memory", found
    assert "419,430,400" in found.message


# --- Messages and limits ---


@pytest.mark.slow
@needs_seccomp
def test_no_message_is_left_for_later_runs(grade: Grade) -> None:
    calls = [
        "libc.shmget(0x70757a, 4096, 0o1666)",
        "libc.msgget(0x70757a, 0o1666)",
        "libc.semget(0x70757a, 1, 0o1666)",
        "libc.mq_open(b'/puzzles', 0o102, 0o666, None)",
        f"libc.syscall({number('add_key')}, b'user', b'note', b'text', 4, -4)",
        f"libc.syscall({number('keyctl')}, 0, -4, 0)",
    ]
    (found,) = grade(solved_after(refuses(*calls)))
    assert found.passed(), found


def test_no_open_file_is_shared_with_later_runs(grade: Grade) -> None:
    """The state of an open file, such as its flags, is that of all processes that have inherited it."""
    flags = "import fcntl\nbefore = fcntl.fcntl(0, fcntl.F_GETFL)\n"
    note = "fcntl.fcntl(0, fcntl.F_SETFL, before | os.O_APPEND | os.O_NONBLOCK)"
    check = "assert not before & (os.O_APPEND | os.O_NONBLOCK), before"
    first, later = grade(solved_after(f"{flags}{check}\n{note}"), solved_after(flags + check))
    assert first.passed(), first
    assert later.passed(), later


@needs_landlock
def test_no_run_can_add_rules_for_later_ones(grade: Grade) -> None:
    body = """
opened = []
for fd in range(resource.getrlimit(resource.RLIMIT_NOFILE)[0] * 4):
    try: opened.append(os.readlink(f"/proc/self/fd/{fd}"))
    except OSError: pass
assert opened and not any("landlock" in name for name in opened), opened
"""
    (found,) = grade(solved_after(body, "os, ctypes, resource"))
    assert found.passed(), found


@needs_seccomp
def test_no_limit_is_evaded_by_namespaces_or_files_without_a_name(grade: Grade) -> None:
    calls = [
        *(f"libc.unshare({flag})" for flag in (0x10000000, 0x00020000, 0x10020000, 0x20000000, 0x40000000)),
        "libc.mount(b'none', b'.', b'tmpfs', 0, None)",
        "os.memfd_create('big')",
        "os.setxattr(open('mine', 'w').name, 'user.note', b'x')",
        f"libc.syscall({number('clone')}, 0x10000000 | 17, 0, 0, 0, 0)",
        f"libc.syscall({number('clone3')}, ctypes.create_string_buffer(88), 88)",
        f"libc.syscall({number('io_uring_setup')}, 8, ctypes.create_string_buffer(120))",
        f"libc.syscall({number('userfaultfd')}, 1)",
        f"libc.syscall({number('fsopen')}, b'tmpfs', 0)",
        "libc.syscall(463, 0)",
    ]
    (found,) = grade(solved_after(refuses(*calls)))
    assert found.passed(), found


NUMBERS = (
    "sync:162:81 syncfs:306:267 "
    "add_key:248:217 cachestat:451:451 clone3:435:435 fsopen:430:430 io_uring_setup:425:425 "
    "keyctl:250:219 readahead:187:213 userfaultfd:323:282"
)
"""Each name with its numbers on x86-64 and aarch64."""


def number(call: str) -> int:
    """Of a system call on this machine."""
    column = list(seccomp.ARCHITECTURES).index(os.uname().machine) + 1
    rows = [row.split(":") for row in (*NUMBERS.split(), seccomp.CLONE)]
    return next(int(row[column]) for row in rows if row[0] == call)


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="other systems have no handlers of crashes")
def test_a_crash_starts_no_handler(grade: Grade) -> None:
    body = "import resource\nassert resource.getrlimit(resource.RLIMIT_CORE) == (1, 1)"
    (found,) = grade(solved_after(body))
    assert found.passed(), found


# --- Other processes, classmates' files ---


@needs_seccomp
def test_a_run_locks_watches_and_writes_out_no_file_that_others_use(grade: Grade) -> None:
    opened = "os.open({}, os.O_RDONLY)"
    file, folder = opened.format("os.__file__"), opened.format("os.path.dirname(os.__file__)")
    calls = [
        f"__import__('fcntl').flock({file}, 6)",
        f"__import__('fcntl').lockf({file}, 5)",
        "__import__('fcntl').lockf(open('mine', 'w'), 6)",
        *(f"__import__('fcntl').fcntl({file}, {request}, bytes(32))" for request in (5, 36, 37)),
        f"__import__('fcntl').fcntl({file}, 1024, 0)",
        f"__import__('fcntl').fcntl({folder}, 1026, 0x1F)",
        *(f"libc.syscall({number(name)}, 1)" for name in ("sync", "syncfs")),  # waits for everybody's disk
        f"os.posix_fadvise({file}, 0, 0, os.POSIX_FADV_DONTNEED)",
        f"libc.syscall({number('readahead')}, {file}, 0, 4096)",
        f"libc.syscall({number('cachestat')}, {file}, bytes(16), bytes(40), 0)",
        f"os.preadv({file}, [bytearray(1)], 0, os.RWF_NOWAIT)",
    ]
    (found,) = grade(solved_after(refuses(*calls)))
    assert found.passed(), found


@needs_seccomp
def test_a_run_cannot_reach_other_processes(grade: Grade) -> None:
    calls = [
        "os.kill(os.getppid(), 0)",
        "os.kill(1, 0)",
        "os.kill(-1, 0)",
        "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
        "os.sched_setaffinity(os.getppid(), [0])",
        "libc.ptrace(16, os.getppid(), 0, 0)",
        "__import__('resource').prlimit(os.getppid(), 7, (3, 3))",
        "libc.prctl(1, 0, 0, 0, 0)",
        "libc.prctl(4, 1, 0, 0, 0)",
        "__import__('fcntl').fcntl(0, 8, os.getppid())",
    ]
    (found,) = grade(solved_after(refuses(*calls)))
    assert found.passed(), found


@needs_seccomp
@needs_landlock
def test_a_run_cannot_touch_classmates_files_sockets_or_command_lines(
    grade: Grade, grader: Grader, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        for folder in (tmp_path, *tmp_path.parents):
            if folder.stat().st_uid == os.getuid() and len(folder.parts) > 2:
                folder.chmod(folder.stat().st_mode | 0o011)  # for a user who is not the one that runs the tests
        file = tmp_path / "anna.py"
        file.write_text("mine")
        os.chown(file, grader.uid, -1)
        before = file.stat()
        unix, udp = (socket.socket(family, socket.SOCK_DGRAM) for family in (socket.AF_UNIX, socket.AF_INET))
        for listener in (unix, udp):
            stack.enter_context(listener).setblocking(False)
        folder = stack.enter_context(TemporaryDirectory())  # an address has at most 107 letters
        os.chmod(folder, 0o711)
        unix.bind(path := f"{folder}/socket")
        os.chmod(path, 0o777)
        udp.bind(("127.0.0.1", 0))
        known = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
        likely = [*known, *range(known[-1] + 1, known[-1] + 100)]
        body = f"""
def tries(work):
    try: work()
    except OSError: return
    raise ValueError("this worked")

name = {str(file)!r}
tries(lambda: os.chmod(name, 0o600))
tries(lambda: os.utime(name, (0, 0)))
tries(lambda: os.truncate(name, 0))
tries(lambda: os.setxattr(name, "user.note", b"x"))
tries(lambda: os.rename(name, name + "2"))
tries(lambda: open(name).close())
tries(lambda: open(name + ".new", "w").close())
tries(lambda: open("/tmp/of-a-run", "w").close())
tries(lambda: open({str(ROOT / "solutions" / "ddp.py")!r}).close())
tries(lambda: os.close(os.open(name, os.O_RDONLY | os.O_TRUNC)))
tries(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"x", {path!r}))
tries(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"x", {path!r}))
tries(lambda: socket.socketpair()[0].connect({path!r}))
tries(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", {udp.getsockname()!r}))
lines = b""
for entry in {likely}:
    for what in ("cmdline", "environ"):
        try: lines += open(f"/proc/{{entry}}/{{what}}", "rb").read()
        except OSError: pass
assert b"a grader of " + b"the tests" not in lines
"""
        (found,) = grade(solved_after(body))
        assert found.passed(), found
        after = file.stat()
        assert (after.st_mode, after.st_mtime_ns, after.st_size) == (before.st_mode, before.st_mtime_ns, 4)
        for listener in (unix, udp):
            with pytest.raises(BlockingIOError):
                listener.recv(1)


@pytest.mark.skipif(not seccomp.can_ask(), reason="this kernel cannot ask a supervisor")
def test_a_run_has_its_own_count_of_tasks_whatever_others_of_its_user_start(grade: Grade) -> None:
    ours = __import__("resource").getrlimit(__import__("resource").RLIMIT_NPROC)
    body = f"""
import resource
assert resource.getrlimit(resource.RLIMIT_NPROC) == {ours}  # which would count those of a user
go, set_off = os.pipe()
def child():
    pid = os.fork()
    if pid == 0:
        os.close(set_off)
        os.read(go, 1)
        os._exit(0)
    return pid
children = [child() for _ in range(3)]
try: child()
except BlockingIOError: pass
else: raise ValueError("five processes")
os.close(set_off)
for pid in children: os.waitpid(pid, 0)
os.waitpid(child(), 0)
"""
    (found,) = grade(solved_after(body), processes=4)
    assert found.passed(), found


# --- What still works ---


@pytest.mark.sampled(1)
def test_what_a_solution_may_need_still_works(grader: Grader, grade: Grade) -> None:
    # A grader of root runs solutions as another user, who may not enter root's home, where Python may be.
    is_open = all(folder.stat().st_mode & 0o001 for folder in Path(sys.base_prefix).resolve().parents)
    program = '[sys.executable, "-S", "-c", "pass"]' if grader.uid or is_open else '["/bin/sh", "-c", ""]'
    body = f"""
import asyncio, signal, subprocess, tempfile
pid = os.fork()
if pid == 0: os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
assert subprocess.run({program}).returncode == 0
def loops(): asyncio.new_event_loop().close()
loops()
one, other = socket.socketpair()
one.send(b"x")
assert other.recv(1) == b"x"
with tempfile.TemporaryDirectory() as folder: open(folder + "/f", "w").close()
assert open("/proc/self/status").read() and open("/proc/meminfo").read()
rang = []
signal.signal(signal.SIGUSR1, lambda *_: rang.append(1))
os.kill(os.getpid(), signal.SIGUSR1)
signal.raise_signal(signal.SIGUSR1)
assert rang == [1, 1]
import ssl, hashlib
assert asyncio.sslproto and ssl.OPENSSL_VERSION and hashlib.new("sha256")
"""
    (found,) = grade(solved_after(body))
    assert found.passed(), found
