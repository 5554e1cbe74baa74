"""Measures training steps on the GPU at hand, prints the planner's predictions beside them, and writes a preset:

    python -m lib.planning.measure -o mine.toml

The steps are those of docs/truth.md, "Measured by us": a Llama of a few layers under FSDP2 on one rank, in 16 bits with
32-bit weights and states, AdamW fused. The model is written here in PyTorch alone, with the operations that the library
transformers uses, so that eager code has the same kernels. On a processor a tiny model runs, to try the program.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple

from lib.errors import RuleError, install_command

from .calibration import Calibration, calibrate, preset_text
from .job import GIB, SHARES, Gpu, Job, Transformer
from .plans import Plan, plan
from .presets import gpu, table, transformer
from .split import Split

WARM_UP, STEPS = 3, 7
"""Steps before the measured ones, and how many are measured."""

TINY = Transformer("tiny", layers=2, hidden=256, heads=4, ffn=768, vocab=1024, sequence=256, kv_heads=2, gated=True)

SIZES = ((4, 8192), (4, 4096), (2, 4096), (1, 2048))
"""Layers of Llama 3 8B and tokens of a sequence; the first that fit the GPU are measured."""


class Step(NamedTuple):
    """A step to measure: a plan's job and split, and whether its layers are compiled."""

    plan: Plan
    compiled: bool

    @property
    def predicted(self) -> float:
        return self.plan.seconds if self.compiled else self.plan.eager_seconds


class Measurement(NamedTuple):
    """Seconds of a step and of the optimizer in it, and the most bytes that were reserved (0: unknown)."""

    seconds: float
    optimizer: float
    reserved: int


def steps_for(used: Gpu, small: bool) -> list[Step]:
    """The steps that fit a GPU: a long sequence, eager and compiled, a recomputed one and a small batch."""
    if small:
        shapes = [(TINY, 256, 1, "none"), (TINY, 128, 2, "full")]
    else:
        layers, sequence = next(
            (size for size in SIZES if _planned(used, _llama(size[0]), size[1], 1, "none").high <= used.usable),
            SIZES[-1],
        )
        shapes = [(_llama(layers), *how) for how in ((sequence, 1, "none"), (sequence, 1, "full"), (512, 4, "none"))]
    steps = [Step(_planned(used, *shape), False) for shape in shapes]
    return steps if small else [*steps[:1], Step(steps[0].plan, True), *steps[1:]]


def _llama(layers: int) -> Transformer:
    return transformer("llama-3-8b", layers=layers)


def _planned(used: Gpu, model: Transformer, sequence: int, microbatch: int, recompute: str) -> Plan:
    job = Job(model, used, 1, microbatch, sequence, kernels="pytorch")
    return plan(job, Split(microbatch=microbatch, recompute=recompute))


# --- The GPU at hand ---


def gpu_at_hand(device: str, name: str | None) -> Gpu:
    """The preset with this name, or the one that the GPU's own name contains; a processor's rates are measured.

    Raises:
        RuleError: no preset has such a name.
    """
    import torch

    if name is not None:
        return gpu(name)
    if device == "cpu":
        return _processor()
    said = torch.cuda.get_device_name().lower()
    known = [preset for preset in table("gpus") if preset in said]
    if not known:
        raise RuleError(f"no preset is for '{said}'; name the nearest with --gpu, such as --gpu h100")
    memory = torch.cuda.get_device_properties(0).total_memory
    return replace(gpu(max(known, key=len)), memory=memory)


def _processor() -> Gpu:
    """A processor as a GPU: its rate of products of 1,024 x 1,024 in 16 bits, and of copies."""
    import torch

    matrix = torch.ones((1024, 1024), dtype=torch.bfloat16)
    large, other = (torch.ones(1 << 24) for _ in range(2))
    product = _median_seconds(lambda: matrix @ matrix, 3)
    copy = _median_seconds(lambda: other.copy_(large), 3)
    rates = {"flops": 2 * 1024**3 / product, "flops8": 0.0, "bandwidth": 2 * 4 * (1 << 24) / copy}
    links = {"nvlink": 1e9, "network": 1e9, "host": 1e9, "machine": 1}
    shares = dict.fromkeys(SHARES, 1.0)
    values: dict[str, Any] = {**rates, **links, **shares, "memory": 64 * GIB, "context": 0}
    return Gpu("processor", source="this processor, to try the program", **values)


def _median_seconds(does: Callable[[], object], times: int) -> float:
    does()
    seconds = []
    for _ in range(times):
        start = perf_counter()
        does()
        seconds.append(perf_counter() - start)
    return median(seconds)


# --- The model ---


def llama_of(model: Transformer, recompute: bool) -> Any:
    """A Llama with a model's sizes, on the device that is torch's default; `forward(tokens)` returns its loss."""
    import torch
    from torch import nn
    from torch.nn import functional
    from torch.utils.checkpoint import checkpoint

    hidden, size = model.hidden, model.head_size

    class Norm(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(hidden))

        def forward(self, x: Any) -> Any:
            wide = x.to(torch.float32)
            wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
            return self.weight * wide.to(x.dtype)

    def turned(x: Any) -> Any:
        half = x.shape[-1] // 2
        return torch.cat((-x[..., half:], x[..., :half]), dim=-1)

    def linear(rows: int, columns: int) -> Any:
        return nn.Linear(rows, columns, bias=False)

    class Layer(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList([Norm(), Norm()])
            self.query, self.out = linear(hidden, model.heads * size), linear(model.heads * size, hidden)
            self.key, self.value = (linear(hidden, model.kv_heads * size) for _ in range(2))
            self.gate, self.up, self.down = (
                linear(hidden, model.ffn),
                linear(hidden, model.ffn),
                linear(model.ffn, hidden),
            )

        def forward(self, x: Any, cos: Any, sin: Any) -> Any:
            normed = self.norms[0](x)
            query, key, value = (
                part(normed).unflatten(-1, (-1, size)).transpose(1, 2) for part in (self.query, self.key, self.value)
            )
            query, key = (part * cos + turned(part) * sin for part in (query, key))
            core = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
            x = x + self.out(core.transpose(1, 2).flatten(-2))
            normed = self.norms[1](x)
            return x + self.down(functional.silu(self.gate(normed)) * self.up(normed))

    class Llama(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.norm, self.head = (
                nn.Embedding(model.vocab, hidden),
                Norm(),
                linear(hidden, model.vocab),
            )
            self.layers = nn.ModuleList([Layer() for _ in range(model.layers)])

        def forward(self, tokens: Any) -> Any:
            x = self.embedding(tokens)
            places = torch.arange(tokens.shape[1], dtype=torch.float32)
            angles = torch.outer(places, 5e5 ** (-torch.arange(0, size, 2) / size)).repeat(1, 2)
            cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
            for layer in self.layers:
                x = checkpoint(layer, x, cos, sin, use_reentrant=False) if recompute else layer(x, cos, sin)
            logits = self.head(self.norm(x)).float()
            return functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    return Llama()


# --- A step ---


def measured(step: Step, device: str) -> Measurement:
    """Trains some steps, and returns their medians."""
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    job, split = step.plan.job, step.plan.split
    torch.manual_seed(1)
    with torch.device(device):
        model = llama_of(job.model, split.recompute == "full")
        tokens = torch.randint(job.model.vocab, (split.microbatch, job.sequence))
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        how: dict[str, Any] = {"mp_policy": policy, "reshard_after_forward": False}
        for layer in model.layers:
            if step.compiled:
                layer.compile()
            fully_shard(layer, **how)
        fully_shard(model, **how)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
        if device != "cpu":
            torch.cuda.reset_peak_memory_stats()
        times = [_step_seconds(model, tokens, optimizer, device) for _ in range(WARM_UP + STEPS)][WARM_UP:]
    reserved = torch.cuda.max_memory_reserved() if device != "cpu" else 0
    return Measurement(median(sum(parts) for parts in times), median(last for _, last in times), reserved)


def _step_seconds(model: Any, tokens: Any, optimizer: Any, device: str) -> tuple[float, float]:
    """Seconds of forward and backward, and of the optimizer."""
    marks = [_now(device)]
    model(tokens).backward()
    marks.append(_now(device))
    optimizer.step()
    optimizer.zero_grad()
    marks.append(_now(device))
    return marks[1] - marks[0], marks[2] - marks[1]


def _now(device: str) -> float:
    if device != "cpu":
        import torch

        torch.cuda.synchronize()
    return perf_counter()


def calibrated(steps: Sequence[Step], found: Sequence[Measurement]) -> Calibration:
    """The GPU whose rates give the first step, compiled where one was."""
    at = next((n for n, step in enumerate(steps) if step.compiled), 0)
    job, split, seconds = steps[at].plan.job, steps[at].plan.split, found[at].seconds
    peak = found[at].reserved / GIB
    return calibrate(job, split, job.tokens / seconds, peak, eager=not steps[at].compiled)


# --- The program ---


def report(steps: Sequence[Step], found: Sequence[Measurement]) -> Iterator[str]:
    yield (
        "layers  tokens     recompute  code      measured ms  predicted ms   error  optimizer ms  reserved GiB  "
        "predicted"
    )
    for step, measurement in zip(steps, found):
        job, split = step.plan.job, step.plan.split
        tokens, code = f"{job.sequence} x {split.microbatch}", "compiled" if step.compiled else "eager"
        error = step.predicted / measurement.seconds - 1
        sizes = f"{measurement.reserved / GIB:12.1f}  {step.plan.peak / GIB:.1f} to {step.plan.high / GIB:.1f}"
        yield (
            f"{job.model.layers:6}  {tokens:9}  {split.recompute:9}  {code:8}  {1e3 * measurement.seconds:11.2f}  "
            f"{1e3 * step.predicted:12.2f}  {error:+6.1%}  {1e3 * measurement.optimizer:12.2f}  {sizes}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lib.planning.measure", description=__doc__.partition("\n")[0])
    parser.add_argument("-o", dest="output", metavar="FILE.toml", help="write a preset for --gpu of puzzles plan")
    parser.add_argument("--gpu", metavar="NAME", help="the preset whose links and data sheet are used")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="cuda if there is a GPU")
    asked = parser.parse_args(arguments)
    try:
        import torch
        import torch.distributed as dist
    except ImportError:
        print(f"this needs PyTorch: {install_command('torch')}", file=sys.stderr)
        return 1
    device = asked.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda" and not torch.cuda.is_available():
        print("torch finds no GPU here; leave out --device cuda to try the program on the processor", file=sys.stderr)
        return 1
    if device == "cpu":
        torch.set_num_threads(1)  # the tiny model has no work for more
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with TemporaryDirectory(prefix="measure-") as folder:
        where = f"file://{folder}/store"
        dist.init_process_group("nccl" if device == "cuda" else "gloo", init_method=where, rank=0, world_size=1)
        try:
            used = gpu_at_hand(device, asked.gpu)
            steps = steps_for(used, small=device == "cpu")
            found = [measured(step, device) for step in steps]
            print("\n".join(report(steps, found)))
            if asked.output:
                name = Path(asked.output).stem
                Path(asked.output).write_text(preset_text(calibrated(steps, found), name), encoding="utf-8")
                print(f"Wrote {asked.output}; next: puzzles plan --gpu {asked.output} --kernels pytorch ...")
        except (RuleError, OSError) as why:
            print(f"{why}", file=sys.stderr)
            return 1
        finally:
            dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
