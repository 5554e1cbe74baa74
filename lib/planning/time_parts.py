"""Where the time of a planned step goes, on average over the ranks of a pipeline: from the ideal step to this one."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from .cost_model import TICKS, cast_seconds, loss_seconds, of_layers, prices
from .layer_cost import compute_seconds, core_backward, experts_of, forward_seconds, layer_times, shared
from .plans import Plan

PARTS: Mapping[str, str] = MappingProxyType(
    {
        "ideal": "the model's flops at the full rate",
        "matrix": "matrix products below the full rate",
        "attention": "the core of attention below the full rate",
        "elementwise": "reading and writing activations",
        "permute": "moving rows to and from experts",
        "recomputation": "recomputation",
        "tp": "tensor parallel communication",
        "cp": "context parallel communication",
        "ep": "exposed expert parallel communication",
        "imbalance": "uneven rows of experts",
        "contention": "collectives that slow computation",
        "update": "the optimizer",
        "dp": "waiting for replicas",
        "host": "waiting for the host",
        "bubble": "the pipeline's bubble",
    }
)
"""What the seconds of a step are spent on, in words; every part except the ideal is a loss."""

LEAST_PART = 0.0005
"""Smaller parts of a step are not shown."""


def time_parts(plan: Plan) -> Mapping[str, float]:
    """Seconds of a step by what they are spent on, see PARTS; they add up to the step. `ideal` is a step at the rate of
    the data sheet, so its share of the step is the plan's MFU. Recomputation includes its own communication; the bubble
    includes the messages. Uneven rows are what balanced routing would save; waiting for the host has what full CUDA
    graphs would save after that."""
    split, job = plan.split, of_layers(plan.job, plan.split)
    priced, times = prices(job, split), layer_times(job, shared(split))
    units = split.batches(job) * sum(priced.units) / split.pp
    layers = units * priced.layers
    balanced = replace(job, balanced=True)
    prompt = replace(balanced, graphs="full")  # all kernels are launched in time
    experts, once = experts_of(prompt, split), layer_times(replace(prompt, modules=()), shared(split))
    given, even, in_time = (sum(layer_times(variant, shared(split))[:3]) for variant in (job, balanced, prompt))
    plain = replace(split, recompute="none") if split.recompute == "ops" else split
    linear, core, moved = forward_seconds(job, plain)
    with_ops = sum(compute_seconds(job, split)) - sum(compute_seconds(job, plain))
    again = times.forward / split.every if split.recompute == "full" else with_ops
    played = priced.forward + priced.back_input + priced.back_weight
    played += priced.forward if split.recompute == "full" and split.every == 1 else 0
    of_head = split.batches(job) * priced.loss / TICKS / split.pp
    copied, loss = 0.0, 0.0
    if job.by_kernel:
        copied = units * cast_seconds(job, priced.parameters)[1]
        loss = split.batches(job) * loss_seconds(job, split)
    ideal = plan.seconds * plan.mfu
    ideal_core = ideal * job.tokens * job.model.attention_flops(job.sequence, job.flash) / job.flops
    parts = {
        "ideal": ideal,
        "matrix": 3 * layers * (linear + experts.slower) + of_head - loss - (ideal - ideal_core),
        "attention": layers * core * (1 + core_backward(job, plain)) - ideal_core,
        "elementwise": 3 * layers * moved + copied + loss,
        "permute": layers * (2 * experts.moved + experts.summed),
        "recomputation": layers * (again + in_time - sum(once[:3])),
        **{axis: layers * once.added.get(axis, 0.0) for axis in ("tp", "cp", "ep")},
        "imbalance": layers * (given - even),
        "contention": units * played / TICKS - layers * (sum(times[:3]) + again - with_ops) - copied,
        "update": sum(priced.units) / split.pp * priced.update / TICKS,
        "dp": plan.waits["dp"],
        "host": plan.waits["host"] + layers * (even - in_time),
    }
    return {**parts, "bubble": plan.seconds - sum(parts.values())}
