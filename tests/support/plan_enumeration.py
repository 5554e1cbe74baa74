"""Every split of a job, enumerated apart from the planner, with closed forms that no run can be faster or smaller than.

The loops, the divisibility and both bounds are written anew: nothing of `lib.planning.split_search` is used. Only what
these bounds leave over is asked for its time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from lib.planning.estimate import estimate
from lib.planning.job import Job
from lib.planning.split import Split, problems

MICROBATCHES = (1, 2, 3, 4, 6, 8, 16)
REACHED = 0.8
ORDERS = [("1f1b", 1), *(("interleaved", v) for v in range(2, 11)), ("zb_h1", 1), ("zb_v", 2)]
MAX_PLAYED = 20_000


class Candidate(NamedTuple):
    """A split, with the least seconds and bytes that it can take."""

    seconds: float
    bytes: float
    split: Split


def candidates(job: Job, fixed: Mapping[str, Any]) -> Iterator[Candidate]:
    """All splits with tensor parallelism up to 16 and with these fields."""
    gpus, model = job.gpus, job.model
    for tp in (1, 2, 4, 8, 16):
        for pp in (n for n in range(1, model.layers + 3) if gpus % (tp * n) == 0):
            for cp in (
                n for n in (1, 2, 4, 8, 16, 32) if gpus % (tp * pp * n) == 0 and (n == 1 or job.sequence > 16384)
            ):
                dp = gpus // (tp * pp * cp)
                for ep in (n for n in range(1, (model.experts or 1) + 1) if dp * cp * tp % n == 0):
                    yield from _inner(job, Split(dp, tp, pp, cp, ep), fixed)


def _inner(job: Job, axes: Split, fixed: Mapping[str, Any]) -> Iterator[Candidate]:
    for microbatch in MICROBATCHES:
        if job.batch % (axes.dp * microbatch) or microbatch * job.sequence > 2**18:
            continue
        for schedule, chunks in ORDERS if axes.pp > 1 else ORDERS[:1]:
            for recompute in ("none", "ops", "full"):
                for zero in (0, 1, 2, 3) if axes.dp * axes.cp > 1 else (0,):
                    split = replace(
                        axes, microbatch=microbatch, schedule=schedule, chunks=chunks, recompute=recompute, zero=zero
                    )
                    if any(getattr(split, name) != given for name, given in fixed.items()):
                        continue
                    played = split.batches(job) * max(job.model.layers, split.stages)
                    if played <= MAX_PLAYED and next(problems(job, split), None) is None:
                        yield Candidate(least_seconds(job, split), least_bytes(job, split), split)


def least_seconds(job: Job, split: Split) -> float:
    """Products at the rate that they reach, what is computed again, tp's collectives, the bubble, and gathers."""
    model, gpu, m = job.model, job.gpu, split.batches(job)
    tokens = job.tokens / job.gpus
    linear = 2 * tokens * model.active_weights / (gpu.efficiency * (gpu.flops8 if job.fp8 else gpu.flops))
    core = tokens * model.layers * model.core_flops(job.sequence) / 2 / (gpu.flops * gpu.core_megatron)
    again = {"none": 0.0, "ops": 0.5, "full": 1.0}[split.recompute] * (linear + core)
    inside = split.tp <= gpu.machine
    rate = gpu.nvlink if inside else gpu.machine * gpu.network
    sent = 8 * (split.tp - 1) * tokens * model.hidden * 2 * model.layers  # of each GPU, in all layers of all ranks
    compute = 3 * linear + core * (1 + 1.25 * 3) + again + sent / split.tp * split.tp / (rate * REACHED) / 2
    compute += least_moved(job, split) / gpu.bandwidth
    ramp = {"1f1b": 1.0, "interleaved": 1 / split.chunks, "zb_h1": 1 / 3, "zb_v": 0.0}[split.schedule]
    compute *= 1 + 0.9 * ramp * (split.pp - 1) / m
    if split.zero < 3:
        return compute
    near = min(split.dp * split.cp, max(1, gpu.machine // split.tp))
    link = gpu.nvlink if near == split.dp * split.cp else min(gpu.nvlink, near * gpu.network)
    weights = (model.dense_weights + model.routed_weights / split.ep) / split.tp / split.pp
    return max(compute, m * weights * 8 * 0.9 / (link * REACHED))


def least_moved(job: Job, split: Split) -> float:
    """Bytes that experts move in a rank's memory, if routing is even: rows eight times in forward and in the input half
    of backward, each weight twice, and the sum of each gradient, which is read and written for every microbatch."""
    model, m = job.model, split.batches(job)
    rows = job.tokens / job.gpus * model.expert_layers * model.top_k * model.hidden
    weights = model.routed_weights / (split.ep if split.ep > 1 else split.tp) / split.pp
    return 2 * 8 * 2 * rows + m * 0.9 * weights * (2 * 2 + 2 * job.gradient)


def least_bytes(job: Job, split: Split) -> float:
    """Weights and states, and what the first rank of the pipeline keeps for backward once it is full."""
    model, shards = job.model, split.dp * split.cp
    routed = model.routed_weights / split.ep
    held = (model.dense_weights + routed) / split.tp / split.pp
    states = (model.dense_weights + model.routed_weights) / split.tp / split.pp / (shards if split.zero else 1)
    weights = 2 * (held / shards if split.zero == 3 else held)
    states = 12 * (states if split.zero else held)
    of_token = model.hidden * 2 if split.recompute == "full" else model.whole_bytes() + model.split_bytes()
    of_token -= sum(model.inputs_in_8_bits()) if job.fp8 and split.recompute != "full" else 0
    kept = of_token / split.tp * (0.5 if split.recompute == "ops" else 1.0)
    tokens = split.microbatch * job.sequence / split.cp
    in_flight = min(split.pp, split.batches(job))
    return 0.8 * (weights + states + in_flight * tokens * kept * model.layers / split.pp)


def fastest(job: Job, fixed: Mapping[str, Any], below: float) -> tuple[float, Split | None, int]:
    """The fastest split that fits and is faster than `below` seconds, and how many were asked for their time."""
    best, found, asked = below, None, 0
    for one in sorted(candidates(job, fixed), key=lambda candidate: candidate.seconds):
        if one.seconds >= best:
            break
        if one.bytes > job.gpu.usable:
            continue
        asked += 1
        ticks, peak = estimate(job, one.split)
        assert ticks / 10**6 >= one.seconds * 0.999, (one, ticks)
        assert peak >= one.bytes * 0.999, (one, peak)
        if peak <= job.gpu.usable and ticks / 10**6 < best:
            best, found = ticks / 10**6, one.split
    return best, found, asked
