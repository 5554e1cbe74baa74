"""The memory and tasks of a server's processes are limited together where this user may make a cgroup."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from puzzles.catalog.schedule import PUZZLES
from puzzles.commands.doctor import findings
from puzzles.grading.grader import grade_puzzle
from puzzles.grading.session import Session
from puzzles.grading.submission import Submission
from puzzles.sandbox import cgroup
from puzzles.sandbox.client import SandboxClient
from puzzles.sandbox.limits import MIB, Limits
from tests.support.hostile import SOLVED
from tests.support.selection import TIERS
from tests.support.shared_sandbox_server import process_of
from tests.support.tiers import require_tier

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="cgroups are Linux's")
HERE = {place.controller: place for place in cgroup.find()}


FORKS = """
import os
started, (end, open_end) = [], os.pipe()
try:
    while len(started) < 9:
        if not (pid := os.fork()):
            os.close(open_end)
            os.read(end, 1)
            os._exit(0)
        started.append(pid)
except BlockingIOError:
    print(len(started))
os.close(open_end)
for pid in started:
    os.waitpid(pid, 0)
"""
"""Starts processes that wait until it closes a pipe, as many as it can."""


def require(controller: str) -> cgroup.CgroupFolder:
    place = HERE[controller]
    if place.unavailable_because:
        pytest.skip(f"{controller}: {place.unavailable_because}")
    return place


def within(group: cgroup.Group, program: str) -> subprocess.CompletedProcess[str]:
    words = group.enter([sys.executable, "-c", program])
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    finally:
        group.remove()


# --- The kernel's own groups ---


def test_the_kernel_limits_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "ROOM_TASKS", 0)
    group = cgroup.make(Limits(processes=3), [require("pids")])
    done = within(group, FORKS)
    assert done.stdout == "2\n", "children beside itself"
    assert not any(map(os.path.exists, group.folders))


def test_the_kernel_limits_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "ROOM_MEMORY", 0)
    program = "import os\nn = os.fork()\nhog = b'x' * (40 << 20)\nif n: exit(os.waitpid(n, 0)[1] and 9)"
    enough, less = (cgroup.make(Limits(memory=size * MIB), [require("memory")]) for size in (200, 64))
    assert within(enough, program).returncode == 0
    assert within(less, program).returncode != 0, "each process has less than the limit, both have more"


def server_of(session: Session) -> SandboxClient:
    session.read()
    assert isinstance(session._client, SandboxClient)
    return session._client


@pytest.mark.own_server
@pytest.mark.parametrize("tier", TIERS)
def test_a_server_is_in_a_group_that_ends_with_it(tier: str) -> None:
    places = [place for place in HERE.values() if place.folder]
    if not places:
        pytest.skip("; ".join(place.unavailable_because for place in HERE.values()))
    with Session(Submission(Path("a.py"), b"x = 1"), Limits(), require_tier(tier)) as session:
        server = server_of(session)
        name = os.path.basename(server._group.folders[0])
        rows = Path(f"/proc/{process_of(server)}/cgroup").read_text().splitlines()
        assert sum(row.endswith(f"/{name}") for row in rows) == len({place.folder for place in places})
    assert not any(map(os.path.exists, server._group.folders))


@pytest.mark.own_server
@pytest.mark.parametrize("tier", TIERS)
def test_who_exceeds_the_memory_of_the_group_is_told_so(tier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    require("memory")
    monkeypatch.setattr(cgroup, "ROOM_MEMORY", -800 * MIB)
    source = b"def basic(model):\n    return b'x' * (400 << 20)\n"
    with Session(Submission(Path("a.py"), source), Limits(), require_tier(tier)) as session:
        assert grade_puzzle(PUZZLES["basic"], session).reason == "memory"


@pytest.mark.own_server
def test_without_a_group_everything_works(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = cgroup.CgroupFolder("memory", "/sys/fs/cgroup/no/such/folder", 2)
    monkeypatch.setattr(cgroup, "find", lambda: (gone,))
    with Session(Submission(Path("a.py"), SOLVED.encode()), Limits(), require_tier("process")) as session:
        assert grade_puzzle(PUZZLES["basic"], session).status == "passed"
        assert server_of(session)._group == cgroup.Group()


# --- Trees of version 2 and 1, made of plain files ---


class Tree:
    """A hierarchy that is mounted in a folder, with the group of this process."""

    def __init__(self, top: Path, own: str, version: int = 2) -> None:
        self.top = top / "tree"
        self.proc = top / "proc"
        self.proc.mkdir()
        names, kind, options = {1: ("memory,pids", "cgroup", "rw,memory,pids"), 2: ("", "cgroup2", "rw")}[version]
        (self.proc / "cgroup").write_text(f"1:name=systemd:/\n0:{names}:/{own}\n")
        (self.proc / "mountinfo").write_text(f"9 1 0:2 / {self.top} rw shared:4 - {kind} {kind} {options}\n")
        self.own = self.group(own)

    def group(self, name: str, shares: str = "", **files: str) -> Path:
        folder = self.top / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in {"cgroup.subtree_control": shares, "cgroup.procs": "", **files}.items():
            (folder / file).write_text(text)
        return folder

    def find(self) -> dict[str, cgroup.CgroupFolder]:
        return {place.controller: place for place in cgroup.find.__wrapped__(str(self.proc))}


def test_a_session_of_systemd_has_groups_next_to_its_own(tmp_path: Path) -> None:
    tree = Tree(tmp_path, "puzzles/app.slice/run-1.scope")
    above = tree.group("puzzles/app.slice", "cpu memory pids")
    group = cgroup.make(Limits(memory=100 * MIB, processes=7), tuple(tree.find().values()))
    (folder,) = map(Path, group.folders)
    assert folder.parent == above
    assert int((folder / "memory.max").read_text()) == 100 * MIB + cgroup.ROOM_MEMORY
    assert (folder / "memory.swap.max").read_text() == "0"
    assert int((folder / "pids.max").read_text()) == 7 + cgroup.ROOM_TASKS
    done = subprocess.run(group.enter(["cat", f"{folder}/cgroup.procs"]), capture_output=True, check=True)
    assert done.stdout == b"0\n", "who starts the command enters first; 0 is itself"


def test_version_1_has_groups_below_its_own(tmp_path: Path) -> None:
    tree = Tree(tmp_path, "puzzles", 1)
    group = cgroup.make(Limits(memory=100 * MIB), tuple(tree.find().values()))
    (folder,) = map(Path, group.folders)
    assert folder.parent == tree.own
    for file in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
        assert int((folder / file).read_text()) == 100 * MIB + cgroup.ROOM_MEMORY


def test_the_top_shares_itself_out(tmp_path: Path) -> None:
    tree = Tree(tmp_path, "")
    tree.group("", "memory")
    found = tree.find()
    assert Path(found["memory"].folder) == tree.top
    assert "no pids" in found["pids"].unavailable_because


def test_a_limit_of_the_graders_own_group_is_not_evaded(tmp_path: Path) -> None:
    tree = Tree(tmp_path, "puzzles/app.slice/run-1.scope")
    tree.group("puzzles/app.slice", "memory pids")
    for limit, evaded in (("max", False), ("8000000000", True)):
        tree.group("puzzles/app.slice/run-1.scope", **{"memory.max": f"{limit}\n"})
        assert ("limit of its own" in tree.find()["memory"].unavailable_because) == evaded


def test_what_others_manage_is_not_divided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(tmp_path, "system.slice/cron.service")
    tree.group("system.slice", "memory pids")
    for user in (0, os.stat(tmp_path).st_uid + 1):
        monkeypatch.setattr(os, "getuid", lambda user=user: user)
        assert f"manages {tree.top}/system.slice" in tree.find()["memory"].unavailable_because
    monkeypatch.setattr(
        os, "getxattr", lambda at, name: b"1" if (at.name, name) == ("system.slice", "user.delegate") else b""
    )
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert tree.find()["memory"].folder == f"{tree.top}/system.slice"


def test_groups_of_ended_graders_are_removed(tmp_path: Path) -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    tree = Tree(tmp_path, "puzzles", 1)
    left = [tree.own / f"puzzles-{pid}-x" for pid in (ended.pid, os.getpid())] + [tree.own / "theirs"]
    for folder in left:
        folder.mkdir()
    cgroup.make(Limits(), tuple(tree.find().values()))
    assert [folder.exists() for folder in left] == [False, True, True]


def test_doctor_says_what_is_limited_and_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree(tmp_path, "")
    tree.group("", "pids")
    found = tuple(tree.find().values())
    monkeypatch.setattr(cgroup, "find", lambda: found)
    memory, pids = (row for heading, row in doctor_rows() if heading == "cgroup")
    assert "not used" in memory
    assert "no memory" in memory
    assert str(tree.top) in pids


def doctor_rows() -> list[tuple[str, str]]:
    """The findings, each with the heading that it is under."""
    rows, above = [], ""
    for heading, row in findings():
        above = heading or above
        rows.append((above, row))
    return rows
