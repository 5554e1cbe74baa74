"""A class graded by processes of MPI, and on a dask cluster: really started, with the same results as here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mpi import mpiexec_or_skip

ROOT = Path(__file__).parents[2]
GRADE = ["puzzles", "grade", "class", "--trust", "--json"]


@pytest.fixture
def a_class(tmp_path: Path) -> Path:
    folder = tmp_path / "class"
    folder.mkdir()
    for name in ("basic", "engine/fsdp", "layout/ffn"):
        text = (ROOT / "solutions" / f"{name}.py").read_text(encoding="utf-8")
        (folder / f"{name.replace('/', '_')}.py").write_text(text, encoding="utf-8")
    return tmp_path


def ran(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_under_mpiexec_the_results_are_the_same(a_class: Path) -> None:
    start = mpiexec_or_skip()
    here = ran([sys.executable, "-m", *GRADE], a_class)
    there = ran([*start, "-n", "2", sys.executable, "-m", "mpi4py.futures", "-m", *GRADE, "--mpi"], a_class)
    assert (here.returncode, there.returncode) == (0, 0), there.stderr
    assert json.loads(there.stdout) == json.loads(here.stdout)


CLUSTER = """
import subprocess, sys
from distributed import LocalCluster

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        sys.exit(subprocess.run([*sys.argv[1:], cluster.scheduler_address]).returncode)
"""
"""Runs a command with the address of a cluster, whose workers are started by a fresh process and not by pytest's."""


@pytest.mark.slow
def test_on_a_dask_cluster_the_results_are_the_same(a_class: Path) -> None:
    pytest.importorskip("distributed", reason="needs the extra: pip install -e '.[dask]'")
    here = ran([sys.executable, "-m", *GRADE], a_class)
    (a_class / "cluster.py").write_text(CLUSTER, encoding="utf-8")
    there = ran([sys.executable, "cluster.py", sys.executable, "-m", *GRADE, "--dask"], a_class)
    assert (here.returncode, there.returncode) == (0, 0), there.stderr
    assert json.loads(there.stdout) == json.loads(here.stdout)
