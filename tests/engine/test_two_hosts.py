"""The engine on several hosts, with the hostfile and the Slurm script of docs/engine.md; the hosts are namespaces."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mpi import mpiexec_or_skip
from tests.support.pages import blocks, page
from tests.support.two_hosts import command_on_node1, two_hosts_or_skip
from tests.test_imports import ROOT

MPIEXEC = mpiexec_or_skip()
ENGINE = page("docs/engine.md")
IS_MPICH = "HYDRA" in subprocess.run([*MPIEXEC, "--version"], capture_output=True, text=True, check=False).stdout
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not IS_MPICH, reason="starts processes as MPICH does")]

JOB = {
    "SLURM_JOB_ID": "1",
    "SLURM_JOBID": "1",
    "SLURM_NODELIST": "node[1-2]",
    "SLURM_JOB_NODELIST": "node[1-2]",
    "SLURM_NNODES": "2",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_TASKS_PER_NODE": "2(x2)",
    "SLURM_NTASKS": "4",
}
"""What Slurm sets in a job of the script's size."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the page's files are, and one that says where a process runs."""
    two_hosts_or_skip(tmp_path / "tried")
    for kind, name in (("python", "train.py"), ("text", "hosts"), ("sh", "train.slurm")):
        (tmp_path / name).write_text(blocks(ENGINE, f'{kind} title="{name}"')[0])
    (tmp_path / "where.py").write_text(
        "import socket\nfrom mpi4py import MPI\n"
        "near = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED).size\n"
        "print(f'{socket.gethostname()} {near}\\n', end='')\n"
    )
    return tmp_path


def on_node1(folder: Path, *words: str, **more: str) -> tuple[str, int]:
    """The output of a command on the first host, and the bytes that it has sent to the second."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    whole_lines = {"PYTHONUNBUFFERED": ""}
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": path, **whole_lines, **more}
    ended = subprocess.run(
        command_on_node1(folder, *words), env=env, cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout, int(ended.stderr.splitlines()[-1])


def command(folder: Path, *words: str) -> list[str]:
    """The page's command with its hostfile, and a way to start processes on the other host."""
    line = next(line for line in "".join(blocks(ENGINE, "sh")).splitlines() if line.startswith("mpiexec -f hosts"))
    options = line.removeprefix("mpiexec ").removesuffix("python train.py").split()
    return [*MPIEXEC, "-launcher-exec", f"{folder}/remote_shell", *options, sys.executable, *words]


def by_hostfile(folder: Path, *words: str) -> tuple[str, int]:
    return on_node1(folder, *command(folder, *words))


def test_the_hosts_are_two(folder: Path) -> None:
    told, _ = by_hostfile(folder, "where.py")
    assert sorted(told.splitlines()) == ["node1 2", "node1 2", "node2 2", "node2 2"]


def test_the_pages_script_runs_with_its_hostfile(folder: Path) -> None:
    assert by_hostfile(folder, "train.py")[0] == blocks(ENGINE, "text")[0] * 4


def test_the_pages_slurm_script_runs_on_the_hosts_of_the_job(folder: Path) -> None:
    assert on_node1(folder, "bash", "train.slurm", **JOB)[0] == blocks(ENGINE, "text")[0] * 4
    (folder / "train.py").write_text((folder / "where.py").read_text())
    (folder / "begun").unlink()
    assert sorted(on_node1(folder, "bash", "train.slurm", **JOB)[0].splitlines())[::2] == ["node1 2", "node2 2"]


def test_bodies_pass_and_their_arrays_cross_the_link(folder: Path) -> None:
    chosen = "large_arrays memory_orders many_large_messages one_sided_puts streams deadlocks a_raise_ends_all".split()
    told, crossed = by_hostfile(folder, "-m", "tests.support.engine_bodies", *chosen)
    assert [body for body in chosen if told.count(f"passed {body}\n") != 4] == []
    assert crossed > 2 * 6 * 400_000 * 8  # many_large_messages: two turns of six from node1 to node2


def test_nothing_is_left_of_the_hosts_when_they_are_killed(folder: Path) -> None:
    """Every process holds the pipe: its end is read only when all have ended."""
    waits = "import time; print('begun\\n', end='', flush=True); time.sleep(600)"
    with subprocess.Popen(
        command_on_node1(folder, *command(folder, "-c", waits)), cwd=folder, stdout=subprocess.PIPE, text=True
    ) as hosts:
        assert hosts.stdout is not None
        assert [hosts.stdout.readline() for _ in range(4)] == ["begun\n"] * 4
        hosts.kill()
        assert hosts.stdout.read() == ""
    links = subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
    assert not re.search(r"\blink[12]\b", links)
