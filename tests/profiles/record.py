"""Records the traces of this folder: `python -m tests.profiles.record [CASE ...]`, with the extra torch. With an order
in a CSV file, `python -m tests.profiles.record ORDER.csv FOLDER` records that into another folder.

Four processes with gloo. A stage computes by sleeping 10 ms in F, I and W each, between two small products, so that
durations are known and four ranks need no four cores. Faults are planted in some cases; `CASES` says which.
"""

import gzip
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch.distributed.pipelining import PipelineStage, schedules
from torch.profiler import ProfilerActivity, profile

from lib.pipelines.torch_csv import read_csv
from lib.profiles.reading import hooks

RANKS, BATCHES, WIDTH = 4, 8, 16
NAP = 0.010
TRACES = Path(__file__).parent / "traces"
KEPT = ("schemaVersion", "distributedInfo", "baseTimeNanoseconds", "displayTimeUnit", "traceEvents", "host_name")


@dataclass(frozen=True)
class Case:
    """A run: its schedule, chunks of a rank, the placement, and what is planted in it."""

    schedule: str = "Schedule1F1B"
    chunks: int = 1
    in_v: bool = False
    slow: tuple[int, float] = (-1, 1.0)
    """A stage, and how many times longer it computes."""
    hooks: bool = False
    stall: float = 0.0
    """Seconds before the forward of microbatch 3 on rank 1."""
    host: float = 0.0
    """Seconds before each receive on rank 1."""
    steps: int = 1
    run: str = "pipeline"
    order: str = ""
    """A CSV file."""


CASES = {
    "1f1b": Case(),
    "1f1b_annotated": Case(hooks=True),
    "1f1b_slow": Case(hooks=True, slow=(2, 1.5)),
    "1f1b_jitter": Case(hooks=True, stall=0.040),
    "1f1b_hosted": Case(hooks=True, host=0.005),
    "gpipe": Case("ScheduleGPipe"),
    "interleaved": Case("ScheduleInterleaved1F1B", 2),
    "interleaved_uneven": Case("ScheduleInterleaved1F1B", 2, slow=(7, 2.0)),
    "interleaved_steps": Case("ScheduleInterleaved1F1B", 2, steps=3),
    "looped_bfs": Case("ScheduleLoopedBFS", 2),
    "zb_interleaved": Case("ScheduleInterleavedZeroBubble", 2),
    "zbv": Case("ScheduleZBVZeroBubble", 2, in_v=True),
    "dualpipev": Case("ScheduleDualPipeV", 2, in_v=True),
    "fsdp2_slow": Case(run="fsdp2", slow=(2, 3.0)),
    "ddp": Case(run="ddp", slow=(2, 3.0)),
    "tp": Case(run="tp", steps=2),
}


class Nap(torch.autograd.Function):
    """Hands a tensor on; forward and backward sleep."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, ahead: float, back: float) -> torch.Tensor:
        ctx.back = back
        time.sleep(ahead)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        time.sleep(ctx.back)
        return grad, None, None


class Layer(torch.nn.Module):
    """A product: its input sleeps in forward and in the input half of backward, its weight in the weight half."""

    def __init__(self, nap: float) -> None:
        super().__init__()
        self.nap = nap
        self.weight = torch.nn.Parameter(torch.eye(WIDTH) + 0.01)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Nap.apply(x, self.nap, self.nap) @ Nap.apply(self.weight, 0.0, self.nap)


def naps(case: Case, stage: int) -> float:
    return NAP * case.slow[1] if stage == case.slow[0] else NAP


def pipeline(case: Case, rank: int) -> Callable[[], None]:
    """A function that trains one step of a pipeline."""
    stages = RANKS * case.chunks
    mine = [rank, stages - 1 - rank] if case.in_v else [rank + RANKS * chunk for chunk in range(case.chunks)]
    if case.order:
        table = read_csv(Path(case.order).read_text())
        stages, mine = table.stages, table.stages_of(rank)
    cpu = torch.device("cpu")
    made = [PipelineStage(Layer(naps(case, stage)), stage, stages, cpu) for stage in mine]
    if case.hooks:
        exec(hooks("torch"), {})
    if rank == 1 and case.host:
        for name in ("get_fwd_recv_ops", "get_bwd_recv_ops"):
            delay(made[0], name, lambda _: case.host)
    if rank == 1 and case.stall:
        delay(made[0], "forward_one_chunk", lambda batch: case.stall if batch == 3 else 0.0)
    how = schedules._PipelineScheduleRuntime if case.order else getattr(schedules, case.schedule)
    given = made if case.order or case.chunks > 1 else made[0]
    runner = how(given, BATCHES, loss_fn=loss, scale_grads=False)
    if case.order:
        runner._load_csv(case.order, format="compute_only")
    x, target = torch.randn(BATCHES * 2, WIDTH), torch.randn(BATCHES * 2, WIDTH)

    def step() -> None:
        last = stages - 1 in mine
        runner.step(*([x] if 0 in mine else []), **({"target": target, "losses": []} if last else {}))

    return step


def delay(stage: Any, name: str, seconds: Callable[[int], float]) -> None:
    """Sleeps before a method of a stage."""
    method = getattr(stage, name)

    def later(batch: int, *args: Any, **more: Any) -> Any:
        time.sleep(seconds(batch))
        return method(batch, *args, **more)

    setattr(stage, name, later)


def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return ((output - target) ** 2).sum()


def replicated(case: Case, rank: int) -> Callable[[], None]:
    """A function that trains one step with DDP, FSDP2 or tensor parallelism."""
    from torch.distributed.device_mesh import init_device_mesh

    nap = naps(case, rank)
    model = torch.nn.Sequential(*(Layer(nap) for _ in range(4)))
    mesh = init_device_mesh("cpu", (RANKS,))
    if case.run == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model)
    elif case.run == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    else:
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        blocks = [torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Linear(256, 64)) for _ in range(4)]
        for block in blocks:
            parallelize_module(block, mesh, {"0": ColwiseParallel(), "1": RowwiseParallel()})
        model = torch.nn.Sequential(*blocks)
    x = torch.randn(8, 64 if case.run == "tp" else WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()

    return step


def record(rank: int, name: str, folder: str) -> None:
    """One rank of a case: two steps to warm up, then those that are recorded."""
    torch.set_num_threads(1)
    torch.manual_seed(7)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS)
    case = CASES.get(name) or Case(order=name)
    step = (pipeline if case.run == "pipeline" else replicated)(case, rank)
    for _ in range(2):
        step()
    dist.barrier()
    with profile(activities=[ProfilerActivity.CPU]) as recorder:
        for number in range(case.steps):
            with torch.profiler.record_function(f"ProfilerStep#{number + 2}"):
                step()
    recorder.export_chrome_trace(f"{folder}/rank{rank}.json")
    dist.barrier()
    dist.destroy_process_group()


def store(name: str, folder: str) -> None:
    """The files without what names this machine, small."""
    target = TRACES / name
    target.mkdir(parents=True, exist_ok=True)
    for rank in range(RANKS):
        data = json.loads(Path(folder, f"rank{rank}.json").read_text())
        kept = {key: data[key] for key in KEPT if key in data} | {"host_name": "host", "traceName": f"rank{rank}.json"}
        text = json.dumps(kept, separators=(",", ":")).encode()
        (target / f"rank{rank}.json.gz").write_bytes(gzip.compress(text, mtime=0))


def main(names: list[str]) -> None:
    if names and names[0].endswith(".csv"):
        order, folder = names
        Path(folder).mkdir(exist_ok=True)
        processes.spawn(record, (order, folder), RANKS)
        Path(folder, "store").unlink(missing_ok=True)
        return
    for name in names or CASES:
        with tempfile.TemporaryDirectory() as folder:
            processes.spawn(record, (name, folder), RANKS)
            store(name, folder)
        print(name, sum(path.stat().st_size for path in (TRACES / name).iterdir()))


if __name__ == "__main__":
    main(sys.argv[1:])
