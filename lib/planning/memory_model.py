"""Bytes of a parameter, of a logit and of a layer's activations, by kernels. Two kinds of code bound the memory of a
run.

*Fused* code keeps the least: it is compiled, has a fused loss, and leaves the allocator's memory unfragmented. *Eager*
code keeps the most: it runs single operations, and leaves holes. Bytes are counted from tensors, not fitted;
docs/truth.md compares published peaks.
"""

from dataclasses import dataclass

from .job import Job
from .split import Split

LOGITS = {"megatron": (6, 8), "pytorch": (6, 14)}
"""Bytes of each logit, fused and eager. Fused: the logit in 16 bits and its softmax in 32. Eager in PyTorch: the logit,
a copy in 32 bits, the log-softmax and the gradient."""

HOLES = {"megatron": 1.1, "pytorch": 1.3}
"""The most that an allocator reserves, as a multiple of the bytes in use. PyTorch's reserves 1.2 to 1.4 times what it
has allocated (measured on one GPU, docs/truth.md)."""

WIDE_TP, WIDE_TP_HOLES = 8, 1.15
"""From so many tensor parallel ranks on, PyTorch's published peaks exceed the counted bytes by up to half, for an
unknown reason. So the upper end of the range is multiplied by this factor."""

MOST_GATHERED, MOST_REDUCED = 10**9, 5 * 10**8
"""The most parameters of a layer that fused code gathers and reduces at a time with ZeRO 3: DeepSpeed's defaults of
stage3_max_live_parameters and reduce_bucket_size. Eager code takes a full layer."""

GATHERED = 2
"""Bytes of a gathered weight: it is gathered in 16 bits, even if its shards have 32."""


@dataclass(frozen=True)
class Widths:
    """Bytes of a parameter: `weight` as it is kept and `gathered`; `gradient` as it is kept and while it is being
    `reduced`; the optimizer's `state`; and `root` for an embedding or a head that stays gathered (FSDP)."""

    weight: int
    gathered: int
    gradient: int
    reduced: int
    state: int
    root: int = 0


def widths(job: Job, split: Split) -> Widths:
    """PyTorch's FSDP (ZeRO 3) shards weights and gradients in 32 bits, and the optimizer uses the sharded weight: 4 + 4
    + 8 bytes. A gradient is made in 16 bits, and copied if it is reduced in 32."""
    if job.kernels == "pytorch" and split.zero == 3:
        reduced = job.gradient + (GATHERED if job.gradient > GATHERED else 0)
        return Widths(4, GATHERED, 4, reduced, max(job.layer_state - 4, 0), GATHERED)
    return Widths(job.weight, min(job.weight, GATHERED), job.gradient, job.gradient, job.layer_state)


def updated_bytes(job: Job, split: Split) -> int:
    """Bytes that the optimizer reads and writes for each parameter: it reads the gradient, and reads and writes its
    state and the weight in 32 bits. Megatron's also writes the weight in 16 bits; PyTorch casts it in the next step."""
    wide = widths(job, split)
    if job.kernels == "pytorch":
        return wide.gradient + 2 * (wide.state + (wide.weight if split.zero == 3 else 0))
    return wide.gradient + 2 * wide.state + wide.weight


def logit_bytes(job: Job, eager: bool) -> int:
    return LOGITS[job.kernels][eager]


def with_holes(job: Job, split: Split, counted: int) -> int:
    """The most that eager code reserves if `counted` bytes are in use."""
    wide = WIDE_TP_HOLES if job.kernels == "pytorch" and split.tp >= WIDE_TP else 1.0
    return round(counted * HOLES[job.kernels] * wide)
