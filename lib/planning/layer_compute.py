"""What one layer computes and keeps on a rank: seconds without communication, and bytes of activations."""

from dataclasses import replace

from .job import Job
from .split import Split

FLASH_BACKWARD = 1.25
"""How much slower than its forward the core of flash attention computes a flop of its backward."""

OPS_TIME, OPS_BYTES = 0.5, 0.5
"""With recomputation of single operations: the share of a forward that runs again, and of the activations kept."""


def tokens_of(job: Job, split: Split) -> int:
    """Tokens of a microbatch on a rank."""
    return split.microbatch * job.sequence // split.cp


def activation_bytes(job: Job, split: Split, eager: bool = False) -> float:
    """Bytes that a rank keeps of a layer for the backward of a microbatch, on average over the layers."""
    of_input = tokens_of(job, split) * 2 * job.model.hidden / (split.tp if split.sp else 1)
    if split.offload == "activations":
        return of_input
    kept = _all_bytes(job, split, split.recompute != "selective", eager)
    if split.recompute == "full":
        return of_input / split.every + kept * (1 - 1 / split.every)
    return kept * (OPS_BYTES if split.recompute == "ops" else 1)


def copied_bytes(job: Job, split: Split) -> float:
    """Bytes of a layer and a microbatch that a rank copies to the host, and back for backward."""
    if split.offload != "activations":
        return 0.0
    on_device = replace(split, offload="none")
    return max(0.0, activation_bytes(job, on_device) - activation_bytes(job, split))


def workspace_bytes(job: Job, split: Split, eager: bool = False) -> float:
    """Bytes in use while the layer that is computed again has them: what is kept of it only then. Of activations in the
    host's memory two layers have theirs on the device: the one that computes, and the one that is copied."""
    if split.offload == "activations":
        return 2 * _all_bytes(job, split, split.recompute != "selective", eager)
    if split.recompute in ("full", "ops"):
        return _all_bytes(job, split, True, eager)
    if split.recompute == "none" or job.flash:
        return 0.0
    return tokens_of(job, split) * job.model.matrix_bytes(job.sequence) / split.tp


def _all_bytes(job: Job, split: Split, matrices: bool, eager: bool = False) -> float:
    model, tp, wide = job.model, split.tp, eager and job.kernels == "pytorch"
    small, large = model.inputs_in_8_bits() if job.fp8 and not eager else (0.0, 0.0)
    each = (model.whole_bytes(wide) - small) / (tp if split.sp else 1) + (model.split_bytes(wide) - large) / tp
    if matrices and not job.flash:
        each += model.matrix_bytes(job.sequence) / tp
    return tokens_of(job, split) * each


def compute_seconds(job: Job, split: Split) -> tuple[float, float, float]:
    """Seconds of a layer's forward and of both halves of its backward on one rank, without communication.

    Matrix products take their flops at the rate that is reached; whatever is kept for backward was written to memory
    once and read once, and again in backward. A flash core computes the causal half, in backward its forward again
    (Dao et al. 2022, algorithm 4), at a rate of its own; 8 bits do not speed it up. Recomputation of single operations
    ("ops") takes half of a forward.
    """
    linear, core, moved = forward_seconds(job, split)
    core_back = core_backward(job, split) * core
    again = OPS_TIME * (linear + core + moved) if split.recompute == "ops" else 0.0
    return linear + core + moved, linear + core_back + moved + again, linear + moved


def forward_seconds(job: Job, split: Split) -> tuple[float, float, float]:
    """Seconds of a layer's forward on one rank: matrix products, attention's core, and moving activations."""
    model, gpu, tokens = job.model, job.gpu, tokens_of(job, split)
    rate = (gpu.flops8 if job.fp8 else gpu.flops) * gpu.efficiency
    linear = 2 * tokens * model.active_weights / model.layers / split.tp / rate
    core = tokens * model.core_flops(job.sequence) / (2 if job.flash else 1) / split.tp / job.core_rate
    return linear, core, 2 * _all_bytes(replace(job, fp8=False), split, True) / gpu.bandwidth


def core_backward(job: Job, split: Split) -> float:
    """How many times as long as its forward the backward of attention's core takes."""
    return FLASH_BACKWARD * 3 if job.flash else 3 if split.recompute == "selective" else 2
