"""Starts processes under mpiexec from a normal program, and returns their answer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from lib.errors import PuzzleError, RuleError
from lib.extras import install_command

ROOT = str(Path(__file__).resolve().parents[4])
"""The folder that contains this `lib`."""

START = f"""
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
spec = PathFinder.find_spec("lib", [{ROOT!r}])
sys.modules["lib"] = module_from_spec(spec)
spec.loader.exec_module(sys.modules["lib"])
sys.path.append({ROOT!r})
from {__name__} import main
main(*sys.argv[1:])
"""
"""The program of each process. Its `lib` comes from ROOT; other modules are looked up there last, because in a clone
ROOT may be the player's folder."""


def mpiexec() -> list[str]:
    """The mpiexec command of the MPI installed with this Python, else the first on the path."""
    beside = Path(sys.executable).parent / "mpiexec"
    command = str(beside) if beside.exists() else shutil.which("mpiexec")
    if command is None:
        raise RuleError(f"there is no mpiexec; install an MPI: {install_command('mpi')}")
    version = subprocess.run([command, "--version"], capture_output=True, text=True, check=False).stdout
    return [command, "--oversubscribe"] if "Open MPI" in version or "OpenRTE" in version else [command]


def by_mpiexec(processes: int, module: str, request: str) -> str:
    """Calls `module.answer(request)` in several processes, and returns the answer of the first."""
    with TemporaryDirectory() as folder:
        asked, answered = Path(folder, "request"), Path(folder, "answer")
        asked.write_text(request, encoding="utf-8")
        program = [sys.executable, "-P", "-c", START, module, str(asked), str(answered)]
        command = [*mpiexec(), "-n", str(processes), *program]
        one_thread = dict.fromkeys(
            ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"
        )  # unless the variables say otherwise
        ended = subprocess.run(command, env={**one_thread, **os.environ}, capture_output=True, text=True, check=False)
        if answered.exists():
            kind, _, text = answered.read_text(encoding="utf-8").partition("\n")
            if kind == "answer":
                return text
            raise PuzzleError(text)
        raise RuleError(
            f"the processes under mpiexec ended with code {ended.returncode}: {ended.stderr.strip()[-2000:]}"
        )


def main(module: str, asked: str, answered: str) -> None:
    """Runs in each process. Only the first reads the request and writes the answer, because others may be on other
    hosts."""
    from mpi4py import MPI

    first = MPI.COMM_WORLD.rank == 0
    request = MPI.COMM_WORLD.bcast(Path(asked).read_text(encoding="utf-8") if first else None)
    try:
        report = "answer\n" + import_module(module).answer(request)
    except PuzzleError as why:
        report = f"refused\n{why}"
    if first:
        Path(answered).write_text(report, encoding="utf-8")
