"""The speed of the engine, in that of bare mpi4py; part of `make bench`.

Each cell is one operation on one size of array. Bare mpi4py runs it in four processes of this machine, into buffers
that are used again. The engine runs it on four devices: on MPI in the same four processes, and in process in one of
them, while the others sleep. All three take turns in one program, many short ones, and each turn of the engine is
compared with the turn of bare mpi4py beside it: a cell is the median of these ratios, with the lower quartile in
brackets. The engine is metered, as it is by default, and gives a new array each time.

Four processes get more of a busy machine than the one of the in-process devices: measure on an idle one.

Run as a program under mpiexec this file measures there. Nothing fails: times are for people to look at.
"""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter, sleep
from typing import Any

import numpy as np

from lib import RuleError
from lib.engine import ShardedEngine, launch

ROOT = Path(__file__).parents[2]
N = 4
SIZES = {256: 100, 64 << 10: 30, 16 << 20: 2}
"""Bytes of the array that one device contributes, and how often an operation is repeated in one turn: so often that
the start and the end of a turn, where processes wait for one another, do not count."""
TURNS = {256: 60, 64 << 10: 30, 16 << 20: 9}
"""The most turns of a cell."""
MIN_TURNS = 3
CELL_SECONDS = 2.5
"""After these no further turn of a cell begins, so that all 15 take less than a minute on a busy machine too."""
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
"""A send is one message of every device to the next one, which receives it."""

LIMITS = {256: {"in process": 1.0, "on MPI": 7.0}, 16 << 20: {"in process": 3.5, "on MPI": 2.0}}
"""The targets, in bare mpi4py's time; 64 KiB has none. They are modest, so that the transports can be short."""

Times = dict[str, list[float]]
"""By measurement: the seconds of each turn."""


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

        after, before = (self.device_id + 1) % N, (self.device_id - 1) % N

        def send() -> None:
            self.send(after, x)
            self.receive(before)

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
        for nbytes in SIZES:
            for name in OPERATIONS:
                cell = {"operation": name, "nbytes": nbytes}
                measures = {
                    "bare": lambda: bare(comm, name, nbytes),  # noqa: B023
                    "on MPI": lambda: max(on_mpi.call("time", cell)),  # noqa: B023
                    "in process": lambda: max(in_process.call("time", cell)),  # noqa: B023
                }
                take_turns(comm, measures, times, f"{name} {nbytes}", TURNS[nbytes])
    if comm.rank == 0:
        print(json.dumps(times))


def take_turns(comm: Any, measures: dict[str, Callable[[], float]], times: Times, cell: str, turns: int) -> None:
    """Measures one after the other, in changing order, until time is up; the first turn warms up."""
    end = perf_counter() + CELL_SECONDS
    for turn in range(turns + 1):
        if comm.bcast(turn > MIN_TURNS and perf_counter() > end):
            return
        for what in list(measures)[:: 1 if turn % 2 else -1]:
            if what == "in process" and comm.rank:
                pass  # the other processes sleep
            elif turn:
                times[f"{what} {cell}"].append(measures[what]())
            else:
                measures[what]()
            done = comm.Ibarrier()
            while not done.Test():
                sleep(0.0005)


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
    from lib.engine.launcher import mpiexec

    command = [*mpiexec(), "-n", str(N), sys.executable, "-m", "tests.bench.engine"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    told = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    times: Times = json.loads(told)
    return times


def ratios(times: Times, where: str, cell: str) -> tuple[float, float]:
    """The median and the lower quartile of the engine's turns, each in the time of bare mpi4py's turn beside it."""
    pairs = [took / alone for took, alone in zip(times[f"{where} {cell}"], times[f"bare {cell}"])]
    return median(pairs), quantiles(pairs, n=4, method="inclusive")[0]


def table(times: Times) -> list[str]:
    """The lines about all cells, and which targets are met."""
    lines = [
        f"the engine on {N} devices, in the time of bare mpi4py in {N} processes with buffers that are used again:",
        f"  {'the median of pairs (lower quartile)':<40} {'bare':>10} {'in process':>24} {'on MPI':>24}",
    ]
    targets, missed = 0, []
    for nbytes in SIZES:
        for name in OPERATIONS:
            cell, what = f"{name} {nbytes}", f"{name} of {size_text(nbytes)}"
            line = f"  {what:<40} {median(times[f'bare {cell}']) * 1e6:7.0f} us"
            for where in ("in process", "on MPI"):
                middle, quarter = ratios(times, where, cell)
                limit = LIMITS.get(nbytes, {}).get(where)
                text = "" if limit is None else f"[{limit:g}] {'OK' if middle <= limit else 'SLOW'}"
                line += f" {middle:6.2f} ({quarter:.2f}) {text:<10}"
                targets += limit is not None
                missed += [] if limit is None or middle <= limit else [f"{what} {where}"]
            lines.append(line.rstrip())
    lines.append(f"  targets met: {targets - len(missed)} of {targets}" + "".join(f"; not {one}" for one in missed))
    return lines


def size_text(nbytes: int) -> str:
    return f"{nbytes >> 20} MiB" if nbytes >> 20 else f"{nbytes >> 10} KiB" if nbytes >> 10 else f"{nbytes} B"


def main(show: Any) -> None:
    """Prints the engine's lines of `make bench`."""
    worst = max(metering().items(), key=lambda item: item[1])
    show(f"metering, added to a numpy call ({worst[0]} is worst)", worst[1] * 1e6, "us", 25)
    try:
        times = on_mpi()
    except (RuleError, ImportError, subprocess.CalledProcessError) as why:
        print(f"MPI is not measured: {why}; it needs pip install '.[mpi]'")
        return
    print(*table(times), sep="\n")


if __name__ == "__main__":
    under_mpiexec()
