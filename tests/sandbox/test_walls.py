"""What no submission can read, import or call: hidden files, Landlock, the filter of system calls, withheld modules."""

import ast
import ctypes
import ctypes.util
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from errno import ENOSYS, EPERM
from functools import cache, partial
from pathlib import Path
from struct import iter_unpack, unpack
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from lib import layout as layouts
from lib import pipelines as schedules
from lib.layout import plan
from lib.layout.notation import graph_to_data
from puzzles import play
from puzzles.judge.grader import grade_file
from puzzles.judge.session import run_in
from puzzles.sandbox import visible_files
from puzzles.sandbox.limits import MIB, Limits
from puzzles.sandbox.visible_files import (
    BUILT_NAMES,
    HIDDEN_NAMES,
    INSTALL_ROOT,
    READABLE_PACKAGES,
    allowed_paths,
    hidden_folders,
    read_rules,
    visible_roots,
)
from puzzles.sandbox.worker import landlock, os_limits, seccomp
from puzzles.sandbox.worker.runner import HIDDEN_MODULES
from puzzles.tracks import TRACKS
from puzzles.tracks.layout import LAYOUT_PUZZLES
from tests.support.commands import puzzles
from tests.support.verdicts import session_of, verdict_on

# --- No solution, test or trial can be read or imported by a submission, however it is isolated ---


MIN_SIZE = 200
"""Bytes of a file that says something; shorter ones, such as empty packages, may well have a double."""

LOOK = """
import hashlib, json, os, stat, sys

def below(root):
    yield root
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if os.path.join(folder, name) not in ("/proc", "/dev", "/sys")]
        yield from (os.path.join(folder, name) for name in names)

def basic(model):
    found, met = {{}}, set()
    for path in (path for root in {roots!r} for path in below(root)):
        try:
            about = os.stat(path)
            ours = path.startswith({ours!r})
            if not stat.S_ISREG(about.st_mode) or not (ours or about.st_size in {sizes!r} and about.st_ino not in met):
                continue
            with open(path, "rb") as file:
                found[path] = hashlib.sha256(file.read()).hexdigest()
            met.add(about.st_ino)
        except OSError:
            pass
    modules = [name for name, module in sys.modules.items() if module is not None]
    os.write(3, (json.dumps({{"files": found, "modules": modules}}) + "\\n").encode())
    os._exit(0)
"""
"""A submission that opens every file below some folders, if it is the game's or as long as a hidden one, and sends
the list with their digests."""


class Seen(NamedTuple):
    """Files that a submission could read, with their digests, and the modules that were loaded in it."""

    files: dict[str, str]
    modules: list[str]


def digests(paths: Iterator[Path]) -> dict[str, Path]:
    """Files by their content, but for short ones."""
    files = [path for path in paths if path.is_file() and path.stat().st_size >= MIN_SIZE]
    return {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in files}


@pytest.fixture(scope="module")
def answers() -> dict[str, Path]:
    """All files in hidden folders, by content: sources, notebooks, and what Python has compiled of them; not what is
    built, which has copies of these and of files that all may read."""
    others = {".git", *BUILT_NAMES}
    folders = [each for each in hidden_folders() if each.is_relative_to(INSTALL_ROOT) and each.name not in others]
    return digests(path for folder in folders for path in folder.rglob("*"))


EVERYWHERE = [pytest.param(name, marks=pytest.mark.slow) for name in ("Landlock", "audit hook")]


@pytest.fixture(scope="module", params=["the game's folders", *EVERYWHERE])
def seen(request: pytest.FixtureRequest, answers: dict[str, Path]) -> Iterator[Seen]:
    if request.param == "the game's folders":
        yield look(answers, [], whole_machine=False)
    elif request.param == "Landlock":
        if not landlock.version():
            pytest.skip("this kernel has no Landlock")
        yield look(answers, [Path("/")])
    else:  # which hides what is hidden, and nothing else
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("puzzles.sandbox.client.read_rules", lambda: {**read_rules(), "readable": []})
            yield look(answers, [])


def look(answers: dict[str, Path], roots: list[Path], whole_machine: bool = True) -> Seen:
    """The findings of a submission that looks below these folders, all that it may read, and all that it may not."""
    visible = [INSTALL_ROOT, *visible_roots()] if whole_machine else [INSTALL_ROOT / name for name in READABLE_PACKAGES]
    roots = [*visible, *hidden_folders(), *answers.values(), *roots]
    sizes = {path.stat().st_size for path in answers.values()}
    ours = tuple(str(INSTALL_ROOT / name) + os.sep for name in (*READABLE_PACKAGES, *HIDDEN_NAMES))
    source = LOOK.format(roots=[*map(str, roots)], sizes=sizes, ours=ours)
    limits = Limits(seconds=120, memory=1024 * MIB)
    with session_of(source, limits) as session:
        request = {"slug": "basic", "stage": TRACKS["schedule"].judge.stage, "size": [2, 4, 1], "longest": 64 * MIB}
        answer = session.run(request, limits.seconds)
    assert answer["ended"] == "exit", answer["output"]
    row = json.loads(answer["result"].splitlines()[-1])
    return Seen(row["files"], row["modules"])


@pytest.mark.slow
def test_the_walk_sees_what_a_submission_needs(seen: Seen) -> None:
    """Else the other tests would prove nothing."""
    for package in READABLE_PACKAGES:
        assert str(INSTALL_ROOT / package / "__init__.py") in seen.files
    assert "lib" in seen.modules


def test_no_readable_file_lies_in_a_hidden_folder(seen: Seen, answers: dict[str, Path]) -> None:
    assert {"solutions", "tests", "notebooks"} <= {path.relative_to(INSTALL_ROOT).parts[0] for path in answers.values()}
    hidden = [os.path.realpath(folder) + os.sep for folder in hidden_folders()]
    assert [path for path in seen.files if os.path.realpath(path).startswith(tuple(hidden))] == []


def test_no_readable_file_is_a_copy_of_a_hidden_one(seen: Seen, answers: dict[str, Path]) -> None:
    assert {path: answers[digest] for path, digest in seen.files.items() if digest in answers} == {}


@pytest.mark.slow
def test_no_readable_module_has_a_definition_of_a_hidden_one(seen: Seen) -> None:
    """Solutions, and the trials with their results and targets, are written down nowhere else."""
    hidden = hidden_definitions()
    ours = tuple(str(INSTALL_ROOT / package) + os.sep for package in READABLE_PACKAGES)
    readable = [Path(path) for path in seen.files if path.startswith(ours) and path.endswith(".py")]
    assert len(hidden) > 200
    assert len(readable) > 100
    assert [(path, hidden[body]) for path in readable for _, body in definitions(path) if body in hidden] == []


@cache
def hidden_definitions() -> dict[str, str]:
    """Functions and classes of solutions and trials, by their syntax trees."""
    folders = (INSTALL_ROOT / "solutions", INSTALL_ROOT / "puzzles" / "catalog" / "engine")
    paths = [path for folder in folders for path in folder.rglob("*.py")]
    return {body: f"{name} of {path}" for path in paths for name, body in definitions(path)}


def definitions(path: Path) -> Iterator[tuple[str, str]]:
    """Functions and classes of a file, each with its syntax tree; not those of one statement, which may be alike."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and len(node.body) > 1:
            yield node.name, ast.dump(ast.Module(node.body, []))


def test_no_hidden_module_is_loaded(seen: Seen) -> None:
    """A worker is forked from a server: what that has imported would be in memory."""
    hidden = tuple(f"{name}." for name in HIDDEN_MODULES)
    assert [name for name in seen.modules if f"{name}.".startswith(hidden)] == []


def test_hidden_modules_are_in_hidden_folders() -> None:
    folders = {INSTALL_ROOT.joinpath(*name.split(".")) for name in HIDDEN_MODULES}
    assert folders <= set(hidden_folders())


# --- Other places to be installed ---

ANSWERS = ("solutions", "tests", "puzzles/catalog/engine", "puzzles/content/engine")


def installed(monkeypatch: pytest.MonkeyPatch, root: Path, packages: Path) -> None:
    """As if the game lay in `root`, and third-party packages in `packages`."""
    for folder in ("lib", "drawing", "puzzles/catalog/layout", *ANSWERS):
        (root / folder).mkdir(parents=True)
    packages.mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(visible_files, "INSTALL_ROOT", root)
    monkeypatch.setattr(visible_files, "SITE_PACKAGES", str(packages))


@pytest.mark.parametrize(
    ("root", "packages", "system"),
    [
        ("game", "venv/site-packages", ()),
        ("game", "game/.venv/site-packages", ()),
        ("site-packages", "site-packages", ()),
        ("site-packages/training_puzzles", "site-packages", ()),
        ("usr/src/game", "usr/lib/site-packages", ("usr",)),
        ("usr/lib/site-packages", "usr/lib/site-packages", ("usr",)),
    ],
)
def test_answers_are_hidden_wherever_the_game_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str, packages: str, system: tuple[str, ...]
) -> None:
    """A clone may lie in a system folder, all of which programs may read; a wheel lies among packages."""
    installed(monkeypatch, tmp_path / root, tmp_path / packages)
    monkeypatch.setattr(visible_files, "SYSTEM_FOLDERS", tuple(str(tmp_path / folder) for folder in system))
    answers = [tmp_path / root / name for name in ANSWERS]
    assert set(answers) <= set(hidden_folders())
    _, readable = allowed_paths()
    for path in readable:
        assert not any(answer.is_relative_to(path) for answer in answers), path
    for needed in ("lib", "puzzles/catalog/layout"):
        assert any((tmp_path / root / needed).is_relative_to(path) for path in readable)


# --- The kernel's Landlock restricts a run, or an audit hook where there is none ---


SOLVED = (INSTALL_ROOT / "solutions" / "basic.py").read_text(encoding="utf-8")

needs_landlock = pytest.mark.skipif(not landlock.version(), reason="this kernel has no Landlock")


def graded(tmp_path: Path, body: str):
    path = tmp_path / "theirs.py"
    path.write_text(SOLVED.replace("    return model", f"{body}    return model"))
    limits = Limits(memory=512 * MIB)
    return grade_file(str(path), [TRACKS["schedule"].puzzle("basic")], limits).verdicts[0]


@pytest.mark.sampled(2)
@needs_landlock
@pytest.mark.parametrize(
    "path", [INSTALL_ROOT / "solutions" / "ddp.py", INSTALL_ROOT / "pyproject.toml", "/etc/passwd", "secret.txt"]
)
def test_a_run_reads_nothing_that_is_not_its_own(tmp_path: Path, path: Path | str) -> None:
    secret = tmp_path / path
    if not secret.exists():
        secret.write_text("mine")
    verdict = graded(tmp_path, f"    open({str(secret)!r})\n")
    assert (verdict.reason, "PermissionError" in verdict.message) == ("crash", True), verdict


@needs_landlock
def test_a_run_cannot_read_around_python_either(tmp_path: Path) -> None:
    answer = INSTALL_ROOT / "solutions" / "ddp.py"
    call = f"    import ctypes\n    assert ctypes.CDLL(None).open({str(answer).encode()!r}, 0) == -1\n"
    assert graded(tmp_path, call).status == "passed"


@needs_landlock
def test_a_run_writes_in_its_folder_only(tmp_path: Path) -> None:
    assert graded(tmp_path, "    open('new', 'w').write('x')\n").status == "passed"
    assert graded(tmp_path, f"    open({str(tmp_path / 'new')!r}, 'w')\n").reason == "crash"
    assert not (tmp_path / "new").exists()


@needs_landlock
@pytest.mark.skipif(landlock.version() < 6, reason="this kernel's Landlock knows nothing of signals")
def test_a_run_cannot_signal_its_supervisor_nor_connect(tmp_path: Path) -> None:
    body = "    import os, socket\n"
    for call in ("os.kill(os.getppid(), 9)", "socket.create_connection(('127.0.0.1', 9), 1)"):
        body += f"    try: {call}\n    except PermissionError: pass\n    else: raise ValueError\n"
    assert graded(tmp_path, body).status == "passed"


def test_without_landlock_python_refuses_the_folders() -> None:
    """In a process of its own, because an audit hook cannot be removed."""
    code = f"""
from puzzles.sandbox.worker import os_limits
os_limits.deny_paths([{str(INSTALL_ROOT / "solutions")!r}])
import os
for look in (open, os.listdir, os.scandir):
    for path in ({str(INSTALL_ROOT / "solutions" / "basic.py")!r}, {str(INSTALL_ROOT / "lib" / ".." / "solutions")!r}):
        try:
            look(path)
        except PermissionError as why:
            assert "not for submissions" in str(why)
        else:
            raise AssertionError(path)
open({str(INSTALL_ROOT / "lib" / "__init__.py")!r}).close()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=INSTALL_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_kernel_without_landlock_restricts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "sys", SimpleNamespace(platform="darwin"))
    assert landlock.version() == 0
    assert landlock.restrict_to(landlock.ruleset([], [], [])) is False


@pytest.mark.parametrize("private", [None, "Python", "packages", "game"])
def test_root_keeps_the_right_to_read_where_only_root_can(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, private: str | None
) -> None:
    """A clone below /root is as unreadable to another user as a Python there."""
    closed = tmp_path / "closed"
    closed.mkdir(0o700)
    for name, module, attribute in (
        ("Python", os, "__file__"),
        ("packages", sys, "prefix"),
        ("game", os_limits, "__file__"),
    ):
        monkeypatch.setattr(module, attribute, str(closed / "file") if private == name else "/usr/lib/file")
    assert os_limits._needs_to_read.__wrapped__() == (private is not None)


# --- The system call filter: its numbers against libseccomp's, and its program run by a second interpreter ---


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


# --- No graded schedule comes from lib.pipelines, and no graded layout from a planner; free play may use both ---


PATIENT = Limits(seconds=60)

BORROWED = """
from lib.pipelines import gpipe as order, pipeline

async def gpipe(model):
    await pipeline(order)(model)
"""
WAYS = {
    "at the top": (BORROWED, 2),
    "in the function": (
        """
async def gpipe(model):
    from lib.pipelines import gpipe as order, pipeline
    await pipeline(order)(model)
""",
        3,
    ),
    "of a module in it": ("from lib.pipelines.orders import gpipe", 1),
    "from the package": (
        """
async def gpipe(model):
    from lib import pipelines
    await pipelines.pipeline(pipelines.gpipe)(model)
""",
        4,
    ),
    "by name": (
        """
from importlib import import_module
def gpipe(model):
    theirs = import_module("lib.pipelines")
    return theirs.pipeline(theirs.gpipe)(model)
""",
        5,
    ),
    "as text": (
        """
import lib
def gpipe(model):
    exec(open(lib.__path__[0] + "/pipelines/orders.py").read(), {})
""",
        4,
    ),
}


@pytest.mark.parametrize(
    "way", [*list(WAYS)[:2], *(pytest.param(way, marks=pytest.mark.slow) for way in list(WAYS)[2:])]
)
def test_a_graded_schedule_cannot_use_it(way: str) -> None:
    source, line = WAYS[way]
    verdict = verdict_on("gpipe", source, PATIENT)
    assert (verdict.status, verdict.stars) == ("failed", 0)
    assert verdict.message.startswith(f"line {line}: ")
    assert "lib.pipelines" in verdict.message
    assert "write it yourself" in verdict.message


def test_the_same_file_runs_where_nothing_is_graded() -> None:
    with session_of(BORROWED, PATIENT) as session:
        session.read()
        assert run_in(session, TRACKS["schedule"], "gpipe", {"size": [8, 4, 4]}, 20).failure is None


@pytest.mark.slow
@pytest.mark.usefixtures("trusted")
def test_free_play_may_use_it(in_an_empty_folder: Path) -> None:
    Path("mine.py").write_text(BORROWED.replace("def gpipe", "def mine"))
    result = puzzles("run", "mine.py", "mine", "--size", "2,2,2", code=0)
    assert "Correct: GPipe " in result.output
    Path("mine.py").write_text(BORROWED)
    result = puzzles("draw", "mine.py", "gpipe", "--text", code=0)


theirs = schedules.pipeline(schedules.gpipe)
other = schedules


async def helper(model: Any) -> None:
    await theirs(model)


async def by_a_helper(model: Any) -> None:
    await helper(model)


async def by_an_import(model: Any) -> None:
    from lib.pipelines import gpipe, pipeline

    await pipeline(gpipe)(model)


async def by_a_module(model: Any) -> None:
    await other.pipeline(other.gpipe)(model)


def in_a_closure(order: Any) -> Callable[[Any], Any]:
    async def schedule(model: Any) -> None:
        await schedules.pipeline(order)(model)

    return schedule


BORROWERS = [theirs, by_a_helper, by_an_import, by_a_module, in_a_closure(schedules.gpipe), partial(theirs)]


@pytest.mark.parametrize("definition", BORROWERS)
def test_play_refuses_it_as_the_grader_would(definition: Any, capsys: pytest.CaptureFixture[str]) -> None:
    result = play("gpipe", definition)
    assert (result.status, result.reason) == ("failed", "rule")
    assert "cannot use lib.pipelines" in result.message


def test_play_judges_what_a_player_wrote_while_it_is_imported() -> None:
    from solutions.gpipe import gpipe

    assert "lib.pipelines" in __import__("sys").modules
    assert play("gpipe", gpipe).status == "passed"


def test_play_without_targets_may_use_it_too() -> None:
    from lib.pipelines import gpipe, pipeline

    result = play(pipeline(gpipe), size=(2, 4, 2), costs="stages")
    assert (result.status, result.report.timesteps) == ("correct", 3 * (4 + 1))


SOLUTION = (Path(__file__).parents[2] / "solutions" / "gpipe.py").read_text(encoding="utf-8")
DRAWN = f"""
import drawing
from lib import run
{SOLUTION}
assert "33.3 steps" in drawing.text(run(gpipe, 8, 4, 4).trace)
"""


@pytest.mark.slow
def test_a_graded_file_may_still_draw() -> None:
    """A picture names a schedule by those of lib.pipelines; where these are withheld, it does without."""
    verdict = verdict_on("gpipe", DRAWN, PATIENT)
    assert verdict.status == "passed", verdict.message


PLANNED = """
from lib.layout import Graph

def ffn(graph: Graph) -> None:
    from lib.layout import plan
    op = plan(graph, memory_cap=40_000).operators["matmul2"]
    graph.shard("matmul2", op.strategy, out=op.output.splits if op.reduction else None)
"""

WAYS_TO_A_PLANNER = """
import gc, importlib, importlib.util, os, pickle, pkgutil, runpy, sys
import lib.layout
import lib.layout

FOLDER = lib.layout.__path__[0]

def from_the_package():
    from lib.layout import plan
    return plan

def from_its_module():
    from lib.layout.exact import plan
    return plan

def by_relative_name():
    return importlib.import_module(".completion", "lib.layout").complete

def of_spmd():
    from lib.layout.spmd import complete
    return complete

def from_a_file(loader=None):
    spec = importlib.util.spec_from_file_location("lib.layout.mine", FOLDER + "/completion.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.complete

def as_text(path=FOLDER + "/integer_program.py"):
    names = {"__name__": "lib.layout.mine", "__package__": "lib.layout"}
    exec(open(path).read(), names)
    return names["IntegerProgram"]

def from_an_open_folder():
    at = os.open(FOLDER, os.O_RDONLY)
    return as_text(os.dup(os.open("integer_program.py", os.O_RDONLY, dir_fd=at)))

def in_memory():
    return next(x for x in gc.get_objects() if getattr(x, "__module__", "") == "lib.layout.completion")

WAYS = {
    "from the package": from_the_package,
    "from its module": from_its_module,
    "as an attribute": lambda: lib.layout.plan,
    "complete": lambda: lib.layout.complete,
    "by getattr": lambda: getattr(sys.modules["lib.layout"], "plan"),
    "reloaded": lambda: importlib.reload(sys.modules["lib.layout"]).plan,
    "by name": lambda: importlib.import_module("lib.layout.exact").plan,
    "by relative name": by_relative_name,
    "by __import__": lambda: __import__("lib.layout.integer_program", fromlist=["x"]).IntegerProgram,
    "by its choices": lambda: importlib.import_module("lib.layout.choices").Choices,
    "by pickle": lambda: pickle.loads(b"clib.layout.exact\\nplan\\n."),
    "by pkgutil": lambda: pkgutil.resolve_name("lib.layout.exact:plan"),
    "by runpy": lambda: runpy.run_module("lib.layout.completion")["complete"],
    "by its loader": lambda: lib.layout.__spec__.loader.get_data(FOLDER + "/completion.py"),
    "from a file": from_a_file,
    "as text": as_text,
    "from an open folder": from_an_open_folder,
    "of spmd": of_spmd,
    "in memory": in_memory,
}

def ffn(graph):
    found, refused = [], []
    for name, way in WAYS.items():
        try:
            found += [name] if way() else []
        except (Exception, SystemExit) as why:
            refused.append(name)
    raise RuntimeError(f"{len(found)} of {len(WAYS)} found one, not {refused}" if found else "none found one")
"""


def test_a_graded_layout_cannot_use_a_planner() -> None:
    verdict = verdict_on("ffn", PLANNED, PATIENT)
    assert (verdict.status, verdict.stars) == ("failed", 0)
    assert verdict.message.startswith("line 5: ")


def test_no_way_leads_a_graded_layout_to_a_planner() -> None:
    assert "none found one" in verdict_on("ffn", WAYS_TO_A_PLANNER, PATIENT).message
    with session_of(WAYS_TO_A_PLANNER, PATIENT) as session:
        session.read()
        request = {"graph": graph_to_data(LAYOUT_PUZZLES["ffn"].graph())}
        done = run_in(session, TRACKS["layout"], "ffn", request, 60)
    assert "19 of 19" in done.failure.message, "where nothing is graded"


def by_the_planner(graph: Any) -> None:
    for name, op in plan(graph).operators.items():
        graph.shard(name, op.strategy)


def by_a_package(graph: Any) -> None:
    layouts.complete(graph, {})


@pytest.mark.parametrize("definition", [by_the_planner, by_a_package])
def test_play_refuses_a_planner_of_layouts(definition: Any) -> None:
    result = play("ffn", definition)
    assert (result.status, result.reason) == ("failed", "rule")
