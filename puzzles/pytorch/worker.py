"""Imports torch once, forks a process for each rank, and runs schedules with torch.distributed.pipelining over gloo.

`main(FOLDER)` reads FOLDER/request.json, and each rank writes FOLDER/rank-N.json. Nothing of a player's runs here: a
schedule is a CSV file.
"""

import json
import os
import socket
import sys
import time
from pathlib import Path
from select import select
from signal import SIGKILL
from typing import Any

SEED = 7


def main(name: str) -> None:
    """Forks the ranks, and waits until all have written their results, before any of them leaves: a process group that
    ranks leave one by one may hang."""
    import torch
    import torch.distributed
    import torch.distributed.pipelining.schedules  # here, once for all ranks

    torch.set_num_threads(1)
    folder = Path(name)
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    leave, hold = os.pipe()
    processes: list[int] = []
    waiting: dict[int, int] = {}  # by pipe, the rank that will write to it
    for rank in range(request["ranks"]):
        told, tell = os.pipe()
        process = os.fork()
        if not process:
            os.close(hold)
            is_good = _rank(folder, rank, request)
            os.write(tell, b"+" if is_good else b"-")
            os.read(leave, 1)
            os._exit(0)
        os.close(tell)
        processes.append(process)
        waiting[told] = rank
    while waiting:
        ready, _, _ = select(waiting, (), ())
        words = {waiting.pop(pipe): os.read(pipe, 1) for pipe in ready}
        if set(words.values()) != {b"+"}:  # the others would wait for it forever
            for rank, word in words.items():
                if not word:
                    code = os.waitstatus_to_exitcode(os.waitpid(processes[rank], 0)[1])
                    _write(folder, rank, {"ended": code})
            for rank, process in enumerate(processes):
                if words.get(rank) != b"":
                    os.kill(process, SIGKILL)
            sys.exit(1)
    os.close(hold)
    for process in processes:
        os.waitpid(process, 0)


def _write(folder: Path, rank: int, result: dict[str, Any]) -> None:
    """Writes a rank's results at once: who is killed while writing leaves no half."""
    part = folder / f"part-{rank}.json"
    part.write_text(json.dumps(result), encoding="utf-8")
    part.replace(folder / f"rank-{rank}.json")


def _rank(folder: Path, rank: int, request: dict[str, Any]) -> bool:
    """Writes what a rank measured, or why it failed; True if it did not."""
    try:
        result: dict[str, Any] = {"runs": _runs(folder, rank, request)}
    except BaseException as why:
        result = {"error": f"{type(why).__name__}: {why}"}
    _write(folder, rank, result)
    return "error" not in result


def _runs(folder: Path, rank: int, request: dict[str, Any]) -> list[dict[str, Any]]:
    import torch.distributed as dist

    loopback = [name for _, name in socket.if_nameindex() if name.startswith("lo")]
    os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback[0] if loopback else "lo")
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=request["ranks"])
    return [_run(folder, rank, request, schedule) for schedule in request["schedules"]]


def _run(folder: Path, rank: int, request: dict[str, Any], schedule: dict[str, Any]) -> dict[str, Any]:
    """One schedule, twice: the first time is for warming up. A third time is for the profiler, if the request has a
    folder for it. The gradients of this rank's stages are compared with those of the whole model in one process."""
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    m, width, depths = schedule["microbatches"], request["width"], schedule["depths"]
    file = folder / schedule["file"]
    mine = schedule["stages"][rank]
    model = [_stage(width, depth, number) for number, depth in enumerate(depths)]
    random = torch.Generator().manual_seed(SEED)
    x, target = (torch.randn(m * width, width, generator=random, dtype=torch.float64) for _ in range(2))
    stages = [PipelineStage(model[stage], stage, len(depths), torch.device("cpu")) for stage in mine]
    runtime = _PipelineScheduleRuntime(stages, m, loss_fn=_loss, scale_grads=False)
    runtime._load_csv(str(file), format=schedule["format"])
    times: list[tuple[str, float, float]] = []
    for stage in stages:
        _measure(stage, times)
    first, last = 0 in mine, len(depths) - 1 in mine

    def step() -> None:
        times.clear()
        for stage in mine:
            model[stage].zero_grad()
        dist.barrier()
        runtime.step(*([x] if first else []), **({"target": target, "losses": []} if last else {}))

    for _ in range(2):
        step()
    result = {"times": list(times)}
    if request["profile"]:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            step()
        profiler.export_chrome_trace(f"{request['profile']}/rank{rank}.json")
    return {"error": _difference(model, mine, x, target), **result}


def _stage(width: int, depth: int, number: int) -> Any:
    """A stage of the model: the same in every process."""
    import torch

    torch.manual_seed(SEED + number)
    layers = [layer for _ in range(depth) for layer in (torch.nn.Linear(width, width, bias=False), torch.nn.Tanh())]
    return torch.nn.Sequential(*layers).double()


def _loss(output: Any, target: Any) -> Any:
    """Summed over a microbatch, so that gradients of microbatches add up to that of the batch."""
    return ((output - target) ** 2).sum()


def _difference(model: list[Any], mine: list[int], x: Any, target: Any) -> float:
    """The largest difference of a gradient from that of one process, relative to its largest element."""
    import torch

    found = {stage: [parameter.grad.clone() for parameter in model[stage].parameters()] for stage in mine}
    for stage in model:
        stage.zero_grad()
    _loss(torch.nn.Sequential(*model)(x), target).backward()
    most = 0.0
    for stage, grads in found.items():
        for grad, parameter in zip(grads, model[stage].parameters()):
            most = max(most, float((grad - parameter.grad).abs().max() / parameter.grad.abs().max()))
    return most


def _measure(stage: Any, times: list[tuple[str, float, float]]) -> None:
    """Notes when each cell of a stage starts and ends; the clock is that of the machine."""
    names = {"forward_one_chunk": "F", "backward_one_chunk": "B", "backward_weight_one_chunk": "W"}
    for name, op in names.items():
        original = getattr(stage, name)

        def timed(number: int, *args: Any, original: Any = original, op: str = op, **more: Any) -> Any:
            half = "I" if op == "B" and not more.get("full_backward", True) else op
            start = time.monotonic()
            result = original(number, *args, **more)
            times.append((f"{stage.stage_index}{half}{number}", start, time.monotonic()))
            return result

        setattr(stage, name, timed)
