"""The speed of the engine, in that of bare mpi4py; part of `make bench`.

Each cell is one operation on one size of array. Bare mpi4py runs it in four processes of this machine, into buffers
that are used again. The engine runs it on four devices: on MPI in the same four processes, and in process in one of
them, while the others sleep. All three take turns in one program, and a cell is the ratio of their medians. The engine
is metered, as it is by default, and gives a new array each time.

Run as a program under mpiexec this file measures there. Nothing fails: times are for people to look at.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

import numpy as np

from lib import RuleError
from lib.engine import ShardedEngine, launch

ROOT = Path(__file__).parents[2]
N = 4
SIZES = {256: 200, 64 << 10: 50, 16 << 20: 2}
"""Bytes of the array that one device contributes, and how often an operation is repeated in one turn."""
ROUNDS = 9
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
"""A send is one message of every device to the next one, which receives it."""

LIMITS = {256: {"in process": 1.0, "on MPI": 2.5}, 16 << 20: {"in process": 1.2, "on MPI": 1.3}}
"""The promises, in bare mpi4py's time; 64 KiB, where both protocols meet, is without one."""

Times = dict[str, list[float]]
"""By measurement: the seconds of each round; their median is reported."""


def seconds(operation: Callable[[], object], times: int) -> float:
    start = perf_counter()
    for _ in range(times):
        operation()
    return (perf_counter() - start) / times


class Clock(ShardedEngine):
    """Says how long an operation takes."""

    def load_checkpoint(self, params: Any) -> None:
        """Nothing to load."""

    def forward(self, x: Any) -> None:
        """Nothing to compute."""

    def time(self, cell: dict[str, Any]) -> float:
        operation = self.operation(cell["operation"], np.ones(cell["nbytes"] // 4, np.float32))
        operation()
        self.barrier()
        return seconds(operation, SIZES[cell["nbytes"]])

    def operation(self, name: str, x: Any) -> Callable[[], object]:
        if name != "send":
            return lambda: getattr(self, name)(x)

        def send() -> None:
            self.send((self.device_id + 1) % N, x)
            self.receive((self.device_id - 1) % N)

        return send


def bare_operation(comm: Any, name: str, x: Any) -> Callable[[], object]:
    """The same in mpi4py, into one buffer."""
    out = np.empty(x.size * {"all_gather": N}.get(name, 1) // {"reduce_scatter": N}.get(name, 1), x.dtype)
    after, before = (comm.rank + 1) % N, (comm.rank - 1) % N
    return {
        "all_reduce": lambda: comm.Allreduce(x, out),
        "all_gather": lambda: comm.Allgather(x, out),
        "reduce_scatter": lambda: comm.Reduce_scatter_block(x, out),
        "all_to_all": lambda: comm.Alltoall(x, out),
        "send": lambda: comm.Sendrecv(x, after, 0, out, before, 0),
    }[name]


def bare(comm: Any, name: str, nbytes: int) -> float:
    operation = bare_operation(comm, name, np.ones(nbytes // 4, np.float32))
    operation()
    comm.Barrier()
    return max(comm.allgather(seconds(operation, SIZES[nbytes])))


def under_mpiexec() -> None:
    """Measures all cells, and prints the times as JSON."""
    from mpi4py import MPI

    comm, times = MPI.COMM_WORLD, defaultdict[str, list[float]](list)
    with ExitStack() as open_runs:
        on_mpi = open_runs.enter_context(launch(Clock, N, on="mpi"))
        in_process = open_runs.enter_context(launch(Clock, N, on="inprocess"))
        for _ in range(ROUNDS):
            for nbytes in SIZES:
                for name in OPERATIONS:
                    cell = {"operation": name, "nbytes": nbytes}
                    times[f"bare {name} {nbytes}"].append(bare(comm, name, nbytes))
                    times[f"on MPI {name} {nbytes}"].append(max(on_mpi.call("time", cell)))
                    if comm.rank == 0:
                        times[f"in process {name} {nbytes}"].append(max(in_process.call("time", cell)))
                    done = comm.Ibarrier()
                    while not done.Test():
                        sleep(0.001)
    if comm.rank == 0:
        print(json.dumps(times))


class Numpy(ShardedEngine):
    """Says how long one call of numpy takes, of the kinds that a meter observes."""

    def load_checkpoint(self, params: Any) -> None:
        """Nothing to load."""

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
    try:
        times = on_mpi()
    except (RuleError, ImportError, subprocess.CalledProcessError) as why:
        print(f"MPI is not measured: {why}; it needs pip install '.[mpi]'")
        return
    print(f"the engine on {N} devices, in the time of bare mpi4py in {N} processes with buffers that are used again:")
    for nbytes in SIZES:
        for name in OPERATIONS:
            alone = median(times[f"bare {name} {nbytes}"])
            size = f"{nbytes >> 20} MiB" if nbytes >> 20 else f"{nbytes >> 10} KiB" if nbytes >> 10 else f"{nbytes} B"
            print(f"  {f'{name} of {size}, bare':<50} {alone * 1e6:8.1f} us")
            for where in ("in process", "on MPI"):
                ratio = median(times[f"{where} {name} {nbytes}"]) / alone
                show(f"    {where}", ratio, "x", LIMITS.get(nbytes, {}).get(where, float("inf")))


if __name__ == "__main__":
    under_mpiexec()
