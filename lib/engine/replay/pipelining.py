"""PyTorch's own tools beside a replay: its profiler records a rank, and its pipelines run a schedule's CSV file."""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lib.engine.engine import ShardedEngine
from lib.engine.launcher import launch
from lib.engine.replay.rank import RankScript, ReplayEngine
from lib.engine.replay.workload import Workload
from lib.engine.words import SAYS
from lib.errors import PuzzleError, RuleError, install_command
from lib.ledger.collectives import COLLECTIVES
from lib.ledger.trace import Trace
from lib.pipelines.torch_csv import CellTimes, Pipeline, slot_text, slots_of, write_csv

# --- Records a rank with torch.profiler, for `puzzles profile`: a replay names its cells as PyTorch's pipelines do ---


def names_of(trace: Trace) -> list[dict[int, str]]:
    """For each rank, the name of the cell that each operation belongs to, by the operation's index. A trace that is not
    a pipeline of PyTorch has no names; its profile shows collectives."""
    names: list[dict[int, str]] = [{} for _ in trace.ranks]
    try:
        replicas = Pipeline.of(trace).replicas
    except RuleError as why:
        if any(op.name in COLLECTIVES for ops in trace.ranks for op in ops):
            return names
        raise RuleError(SAYS("nothing to profile", why=why)) from None
    for work, cells in chain.from_iterable(zip(replica.works, replica.cells) for replica in replicas):
        end = -1
        for slot in slots_of(work, cells):
            ats = cells[slot[0]]
            if ats[0] <= end:
                raise RuleError(SAYS("cells alternate", slot=slot_text(slot), rank=work.rank))
            end = ats[-1]
            names[work.rank].update(dict.fromkeys(range(ats[0], end + 1), f"PP:{slot_text(slot)}"))
    return names


@contextmanager
def recorded(folder: str, rank: int) -> Iterator[None]:
    """Records the context with torch.profiler, and writes the profile to `rankN.json`."""
    from torch.profiler import profile

    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it prints when it starts and stops
    with profile() as profiler:
        yield
    profiler.export_chrome_trace(str(Path(folder, f"rank{rank}.json")))


class RecordingEngine(ReplayEngine):
    """Plays a rank's part twice: first to warm up, then for the profiler, which writes to a folder. `names` comes from
    `names_of`."""

    def __init__(
        self, scripts: Sequence[RankScript], workload: Workload, names: Sequence[Mapping[int, str]], folder: str
    ) -> None:
        super().__init__(scripts, workload)
        self.names, self.folder = names[self.device_id], folder
        self.named, self.annotation = "", ExitStack()
        """The cell of the running operation, and the profiler's annotation for it."""

    def forward(self, x: Any) -> None:
        super().forward(x)
        super().__init__(self.scripts, self.workload)
        self.annotation.close()
        self.named = ""
        self.barrier()
        with recorded(self.folder, self.device_id), self.annotation:
            super().forward(x)

    def turn(self, at: int, call_runs: bool, runs_later: bool) -> None:
        name = self.named if call_runs else self.names.get(at, "")
        if name != self.named:
            from torch.profiler import record_function

            self.annotation.close()
            self.named = name
            if name:
                self.annotation.enter_context(record_function(name))
        super().turn(at, call_runs, runs_later)


# --- A pipeline from its CSV file ---
#
# Runs a pipeline from its CSV file with torch.distributed.pipelining: each device of a launch has a rank's stages.

OLDEST = 2, 13
"""The first version of PyTorch that was tried. Loading a CSV file is not part of its public interface, and may change.
"""

CLOSE = 1e-9
"""The largest relative difference of float64 gradients that differ only in the order of sums."""

WIDTH = 384
"""A layer is a matrix of this size and a tanh; a microbatch is a matrix of this size. Both are float64."""

RUNS = 3
"""Measured steps; the one of median length is shown."""

FORMATS = {False: "compute_only", True: "compute_comms"}
METHODS = {"forward_one_chunk": "F", "backward_one_chunk": "B", "backward_weight_one_chunk": "W"}
SEED = 7


@dataclass(frozen=True)
class MeasuredRun:
    """A run of PyTorch: the largest difference of its gradients from a single process's, relative to the largest
    element, and by rank the start and end of each cell, in seconds from the first start."""

    error: float
    cells: CellTimes

    @property
    def same(self) -> bool:
        return self.error < CLOSE

    @property
    def seconds(self) -> float:
        return _seconds(self.cells)


def missing() -> str:
    """Why PyTorch cannot be used here; empty if it can."""
    try:
        installed = version("torch")
    except PackageNotFoundError:
        return f"this needs PyTorch, which is not installed: {install_command('torch')}"
    if tuple(int(part) for part in re.findall(r"\d+", installed)[:2]) < OLDEST:
        needed = ".".join(map(str, OLDEST))
        return (
            f"loading a schedule from CSV needs PyTorch {needed} or newer, and {installed} is installed; leave out "
            "--through pipelining to replay the schedule"
        )
    return ""


def run_pipelining(
    pipeline: Pipeline,
    communication: bool = False,
    width: int = WIDTH,
    folder: str = "",
    time_limit: float | None = None,
) -> MeasuredRun:
    """Runs a pipeline on matrices of `width`, with the `communication` of the trace or with PyTorch's own. With a
    `folder`, each rank records another step with torch.profiler and writes the profile there."""
    ranks = len(pipeline.only().works)
    if why := missing():
        raise RuleError(why)
    from lib.engine.process_devices import load_once  # here, because a browser has no processes

    load_once("torch.distributed.pipelining.schedules")
    with TemporaryDirectory(prefix="puzzles-torch-") as place:
        file = Path(place, "order.csv")
        file.write_text(write_csv(pipeline.trace, communication), encoding="utf-8")
        asked = {
            "file": str(file), "format": FORMATS[communication], "width": width, "folder": folder,
            "microbatches": pipeline.table.batches, "depths": pipeline.depths,
            "stages": {rank: pipeline.table.stages_of(rank) for rank in range(ranks)},
        }  # fmt: skip
        try:
            with launch(PipelineDevice, ranks, on="torch", metered=False, time_limit=time_limit) as run:
                replies = run.forward(asked)
        except PuzzleError as why:
            raise RuleError(f"PyTorch failed: {why}") from None
        except Exception as why:
            told, where = " ".join(str(why).split())[:300], getattr(why, "__notes__", ["raised"])[0]
            raise RuleError(f"PyTorch failed: {type(why).__name__}, {where}: {told}") from None
    runs = sorted(map(_on_one_clock, zip(*(reply["times"] for reply in replies))), key=_seconds)
    return MeasuredRun(max(reply["error"] for reply in replies), runs[RUNS // 2])


def _on_one_clock(ranks: Sequence[Sequence[tuple[str, float, float]]]) -> CellTimes:
    """The cells of a run of all ranks, in seconds from the first start."""
    first = min(start for rank in ranks for _, start, _ in rank)
    return [{cell: (start - first, end - first) for cell, start, end in rank} for rank in ranks]


def _seconds(cells: CellTimes) -> float:
    return max(end for rank in cells for _, end in rank.values())


class PipelineDevice(ShardedEngine):
    """One rank with its stages. No player's code runs here: a schedule is a CSV file."""

    def load_checkpoint(self, params: Any) -> None:
        """Does nothing: weights are drawn."""

    def forward(self, x: Mapping[str, Any]) -> dict[str, Any]:
        """Trains one step to warm up, then RUNS measured ones, and one for the profiler if the request names a folder.
        Compares the gradients of this rank's stages with the full model's."""
        import torch
        import torch.distributed as dist
        from torch.distributed.pipelining import PipelineStage
        from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

        m, width, depths, stage_numbers = x["microbatches"], x["width"], x["depths"], x["stages"][self.device_id]
        model = [_stage(width, depth, number) for number, depth in enumerate(depths)]
        random = torch.Generator().manual_seed(SEED)
        batch, target = (torch.randn(m * width, width, generator=random, dtype=torch.float64) for _ in range(2))
        stages = [PipelineStage(model[stage], stage, len(depths), torch.device("cpu")) for stage in stage_numbers]
        runtime = _PipelineScheduleRuntime(stages, m, loss_fn=_loss, scale_grads=False)
        runtime._load_csv(x["file"], format=x["format"])
        times: list[tuple[str, float, float]] = []
        for stage in stages:
            for name, op in METHODS.items():
                setattr(stage, name, _timed(getattr(stage, name), stage.stage_index, op, times))
        given = [batch] if 0 in stage_numbers else []
        compared: dict[str, Any] = {"target": target, "losses": []} if len(depths) - 1 in stage_numbers else {}

        def step() -> None:
            times.clear()
            for stage in stage_numbers:
                model[stage].zero_grad()
            dist.barrier()
            runtime.step(*given, **compared)

        step()
        measured = []
        for _ in range(RUNS):
            step()
            measured.append(list(times))
        if x["folder"]:
            with recorded(x["folder"], self.device_id):
                step()
        return {"error": _difference(model, stage_numbers, batch, target), "times": measured}


def _stage(width: int, depth: int, number: int) -> Any:
    import torch

    torch.manual_seed(SEED + number)
    layers = [layer for _ in range(depth) for layer in (torch.nn.Linear(width, width, bias=False), torch.nn.Tanh())]
    return torch.nn.Sequential(*layers).double()


def _loss(output: Any, target: Any) -> Any:
    """Summed over a microbatch, so that the gradients of microbatches add up to the batch's gradient."""
    return ((output - target) ** 2).sum()


def _difference(model: list[Any], stage_numbers: list[int], batch: Any, target: Any) -> float:
    """The largest difference of a gradient from a single process's, relative to its largest element."""
    import torch

    grads_of = {stage: [parameter.grad.clone() for parameter in model[stage].parameters()] for stage in stage_numbers}
    for stage in model:
        stage.zero_grad()
    _loss(torch.nn.Sequential(*model)(batch), target).backward()
    most = 0.0
    for stage, grads in grads_of.items():
        for grad, parameter in zip(grads, model[stage].parameters()):
            most = max(most, float((grad - parameter.grad).abs().max() / parameter.grad.abs().max()))
    return most


def _timed(method: Any, stage: int, op: str, times: list[tuple[str, float, float]]) -> Callable[..., Any]:
    """Wraps a method of a stage to record when each cell starts and ends, on the machine's clock."""

    def timed(number: int, *args: Any, **more: Any) -> Any:
        half = "I" if op == "B" and not more.get("full_backward", True) else op
        start = time.monotonic()
        result = method(number, *args, **more)
        times.append((f"{stage}{half}{number}", start, time.monotonic()))
        return result

    return timed
