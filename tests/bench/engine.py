"""The speed of the engine, as ratios to bare mpi4py on the same arrays in the same run; part of `make bench`.

Run as a program under mpiexec it measures there. Nothing fails: times are for people to look at.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from lib import RuleError
from lib.engine import ShardedEngine, launch

ROOT = Path(__file__).parents[2]
N = 4
SIZES = {256: 300, 16 << 20: 3}
"""Bytes of the array, and how often it is reduced in one round."""
ROUNDS, TURNS = 7, 3
"""Rounds in one go; and turns of in process and MPI, so that a machine that others use is the same for both."""

Times = dict[str, list[float]]
"""By measurement: the seconds of each round; their median is reported."""


class Clock(ShardedEngine):
    """Says how long one all-reduce takes."""

    def load_checkpoint(self, params: Any) -> None:
        """Nothing to load."""

    def backward(self, grads: Any) -> None:
        """Nothing to do."""

    def forward(self, x: Any) -> float:
        times = SIZES[x.nbytes]
        self.all_reduce(x)
        self.barrier()
        start = perf_counter()
        for _ in range(times):
            self.all_reduce(x)
        return (perf_counter() - start) / times


def engine(on: str, nbytes: int, metered: bool = True) -> float:
    with launch(Clock, N, on=on, metered=metered) as run:
        x = np.ones(nbytes // 4, np.float32)
        return max(run.forward(x))


def bare(nbytes: int) -> float:
    """The same in mpi4py, into a new array each time, as the engine gives one."""
    from mpi4py import MPI

    comm, x = MPI.COMM_WORLD, np.ones(nbytes // 4, np.float32)
    comm.Allreduce(x, np.empty_like(x))
    comm.Barrier()
    start = perf_counter()
    for _ in range(SIZES[nbytes]):
        comm.Allreduce(x, np.empty_like(x))
    return max(comm.allgather((perf_counter() - start) / SIZES[nbytes]))


def under_mpiexec() -> None:
    """Measures bare and engine by turns, so that both see the same machine, and prints the times."""
    from mpi4py import MPI

    times: Times = {}
    for _ in range(ROUNDS):
        for nbytes in SIZES:
            times.setdefault(f"bare {nbytes}", []).append(bare(nbytes))
            times.setdefault(f"engine {nbytes}", []).append(engine("mpi", nbytes))
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(times))


class Numpy(ShardedEngine):
    """Says how long one call of numpy takes, of the kinds that a meter observes."""

    def load_checkpoint(self, params: Any) -> None:
        """Nothing to load."""

    def backward(self, grads: Any) -> None:
        """Nothing to do."""

    def forward(self, x: Any) -> dict[str, float]:
        calls = {
            "x @ x": lambda: x @ x,
            "einsum": lambda: np.einsum("ij,jk->ik", x, x),
            "x + x": lambda: x + x,
            "zeros": lambda: np.zeros(4),
            "x[1:]": lambda: x[1:],
            "concatenate": lambda: np.concatenate([x, x]),
        }
        seconds = {}
        for name, call in calls.items():
            start = perf_counter()
            for _ in range(5000):
                call()
            seconds[name] = (perf_counter() - start) / 5000
        return seconds


def metering() -> dict[str, float]:
    """Seconds that metering adds to a call, by kind; the best of a few rounds."""
    best: list[dict[str, float]] = []
    for metered in (True, False):
        rounds = []
        for _ in range(3):
            with launch(Numpy, metered=metered) as run:
                rounds.append(run.forward(np.ones((4, 4)))[0])
        best.append({name: min(r[name] for r in rounds) for name in rounds[0]})
    return {name: best[0][name] - best[1][name] for name in best[0]}


def on_mpi() -> Times:
    """The output of this file under mpiexec.

    Raises:
        RuleError, ImportError, CalledProcessError: there is no MPI here.
    """
    from lib.engine.transports.mpi.spawn import mpiexec

    command = [*mpiexec(), "-n", str(N), sys.executable, "-m", "tests.bench.engine"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    told = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    times: Times = json.loads(told)
    return times


def main(show: Any) -> None:
    """Prints the engine's lines of `make bench`."""
    worst = max(metering().items(), key=lambda item: item[1])
    show(f"metering, added to a numpy call ({worst[0]} is worst)", worst[1] * 1e6, "us", 25)
    times: Times = {}
    try:
        for _ in range(TURNS):
            here = {f"here {nbytes}": [engine("inprocess", nbytes) for _ in range(ROUNDS)] for nbytes in SIZES}
            for name, seconds in (here | on_mpi()).items():
                times.setdefault(name, []).extend(seconds)
    except (RuleError, ImportError, subprocess.CalledProcessError) as why:
        print(f"MPI is not measured: {why}; it needs pip install '.[mpi]'")
        return
    limits = {256: (1.0, 2.5), 16 << 20: (None, 1.3)}
    for nbytes, (in_process, by_mpi) in limits.items():
        size = "256 B" if nbytes == 256 else "16 MiB"
        alone, in_one, in_four = (median(times[f"{name} {nbytes}"]) for name in ("bare", "here", "engine"))
        print(f"{f'all-reduce of {size}, 4 devices, bare mpi4py':<52} {alone * 1e6:8.1f} us")
        show("  in process, in that", in_one / alone, "x", in_process or float("inf"))
        show("  engine on MPI, in that", in_four / alone, "x", by_mpi)


if __name__ == "__main__":
    under_mpiexec()
