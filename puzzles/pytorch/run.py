"""Hands schedules to PyTorch, and reads the results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lib import PuzzleError, Trace
from lib.communication.mesh import Mesh
from lib.extras import install_command
from lib.torch_csv import Pipeline, write_csv
from puzzles.search_path import START

TRIED = "2.13"
"""The version of PyTorch that was tried: what loads a CSV there is not public, and may change."""

PROGRAM = f"{START}; from puzzles.pytorch.worker import main; main(sys.argv[1])"
"""The program of the worker. A `torch.py` of the player's folder is not what is imported."""

CLOSE = 1e-9
"""Gradients in float64 are equal up to the order of sums if they differ by less than this part of the largest."""

WIDTH = 384
"""A layer is a matrix of this size and a tanh, a microbatch another matrix of this size, both in float64."""

FORMATS = {False: "compute_only", True: "compute_comms"}


@dataclass(frozen=True)
class Scheduled:
    """A pipeline for PyTorch, and whether its communication is the trace's own."""

    name: str
    trace: Trace
    pipeline: Pipeline
    communication: bool = False

    @classmethod
    def of(cls, name: str, trace: Trace, communication: bool = False) -> Scheduled:
        """The pipeline of a trace.

        Raises:
            PuzzleError: PyTorch has no words for it, or it has replicas.
        """
        pipeline = Pipeline.of(trace)
        if pipeline.replicas > 1:
            raise PuzzleError(
                f"this run has {pipeline.replicas} replicas of a pipeline, and here PyTorch runs one; play one with "
                f"{_one_replica(trace, pipeline)}"
            )
        return cls(name, trace, pipeline, communication)


def _one_replica(trace: Trace, pipeline: Pipeline) -> str:
    """The options of a game with one of the replicas: of its size, and on its part of the mesh."""
    axes, ranks = trace.setting.mesh, [work.rank for work in pipeline.works]
    size = f"--size {trace.size.layers},{len(pipeline.batches)},{len(ranks)}"
    mesh = Mesh(axes, trace.size.ranks)
    lengths = (f"{axis}={len({mesh.index(rank, axis) for rank in ranks})}" for axis, _ in axes)
    return f"{size} --mesh {','.join(lengths)}" if axes else size


@dataclass(frozen=True)
class MeasuredRun:
    """What PyTorch did: how far its gradients are from those of one process (of the largest), and by rank the start and
    end of each cell, in seconds from the first start."""

    error: float
    cells: Sequence[Mapping[str, tuple[float, float]]]

    @property
    def same(self) -> bool:
        return self.error < CLOSE

    @property
    def seconds(self) -> float:
        return max(end for rank in self.cells for _, end in rank.values())


def missing() -> str:
    """Why PyTorch cannot be used here; empty if it can."""
    try:
        found = version("torch")
    except PackageNotFoundError:
        return f"this needs PyTorch {TRIED}, which is not installed: {install_command('torch')}"
    if not found.startswith(f"{TRIED}."):
        return f"this was tried with PyTorch {TRIED} only, and {found} is installed: {install_command('torch')}"
    return "" if hasattr(os, "fork") else "this needs a system that can fork processes, such as Linux or macOS"


def run_all(
    schedules: Sequence[Scheduled], seconds: float, width: int = WIDTH, profile: Path | None = None
) -> list[MeasuredRun]:
    """Runs schedules of equally many ranks one after the other, by as many processes, on matrices of `width`. Into the
    folder `profile` each rank writes what torch.profiler records of another step; the last schedule stays.

    Raises:
        PuzzleError: PyTorch is missing, failed, or took longer than `seconds`.
    """
    if why := missing():
        raise PuzzleError(why)
    with TemporaryDirectory(prefix="puzzles-torch-") as name:
        folder = Path(name)
        ranks = len(schedules[0].pipeline.works)
        request = {"ranks": ranks, "width": width, "schedules": [], "profile": profile and str(profile.resolve())}
        for number, schedule in enumerate(schedules):
            table = schedule.pipeline.table
            file = f"schedule-{number}.csv"
            (folder / file).write_text(write_csv(schedule.trace, schedule.communication), encoding="utf-8")
            row = {
                "file": file,
                "format": FORMATS[schedule.communication],
                "microbatches": table.batches,
                "depths": schedule.pipeline.depths,
                "stages": [table.stages_of(rank) for rank in range(ranks)],
            }
            request["schedules"].append(row)  # type: ignore[attr-defined]
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        _work(folder, seconds)
        return _results(folder, ranks, len(schedules))


def _work(folder: Path, seconds: float) -> None:
    """Runs the worker to its end; nothing of it is left behind."""
    worker = subprocess.Popen(
        [sys.executable, "-P", "-c", PROGRAM, str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    try:
        _, errors = worker.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise PuzzleError(f"PyTorch did not end within {seconds:g} seconds; give it more with --time-limit") from None
    finally:
        if worker.poll() is None or worker.returncode:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            worker.communicate()
    if worker.returncode and not list(folder.glob("rank-*.json")):
        last = errors.decode(errors="replace").strip().splitlines()[-1:]
        raise PuzzleError(f"PyTorch failed: {last[0][:300] if last else _ended(worker.returncode)}")


def _results(folder: Path, ranks: int, schedules: int) -> list[MeasuredRun]:
    results: list[dict[str, Any]] = []
    for rank in range(ranks):
        file = folder / f"rank-{rank}.json"
        results.append(json.loads(file.read_text(encoding="utf-8")) if file.exists() else {})
    for rank, result in sorted(enumerate(results), key=lambda pair: "ended" not in pair[1]):  # the others fail for it
        if "ended" in result:
            raise PuzzleError(f"PyTorch failed on rank {rank}: {_ended(result['ended'])}")
        if "error" in result:
            raise PuzzleError(f"PyTorch failed on rank {rank}: {' '.join(result['error'].split())[:300]}")
    if not all(results):
        raise PuzzleError("PyTorch ended before all ranks were done")
    found = []
    for number in range(schedules):
        runs = [result["runs"][number] for result in results]
        first = min(start for run in runs for _, start, _ in run["times"])
        cells = [{cell: (start - first, end - first) for cell, start, end in run["times"]} for run in runs]
        found.append(MeasuredRun(max(run["error"] for run in runs), cells))
    return found


def _ended(code: int) -> str:
    from lib.engine.executors.forked import how_it_ended  # here, since the page draws profiles without the engine

    return how_it_ended(code)
