"""Where the time of a planned step goes, on average over the ranks of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .cost_model import TICKS, prices
from .layer_compute import compute_seconds
from .layer_cost import layer_times, shared
from .plans import Plan


def time_parts(plan: Plan) -> Mapping[str, float]:
    """Seconds of a step by what they are for; they add up to the step. `communication` of a layer is along tp, cp and
    ep; `contention` is what collectives slow computation by; `waiting` is the bubble, and waiting for replicas."""
    job, split = plan.job, plan.split
    priced, times = prices(job, split), layer_times(job, shared(split))
    units = split.batches(job) * sum(priced.units) / split.pp
    layers = units * priced.layers
    once = compute_seconds(job, replace(split, recompute="none") if split.recompute == "ops" else split)
    with_ops = sum(compute_seconds(job, split)) - sum(once)
    again = times.forward / split.every if split.recompute == "full" else with_ops
    played = priced.forward + priced.back_input + priced.back_weight
    played += priced.forward if split.recompute == "full" and split.every == 1 else 0
    within = sum(times[:3]) - sum(once) - with_ops
    parts = {
        "computation": layers * sum(once),
        "recomputation": layers * again,
        "communication": layers * within,
        "contention": units * played / TICKS - layers * (sum(once) + again + within),
        "head": split.batches(job) * priced.loss / TICKS / split.pp,
        "update": sum(priced.units) / split.pp * priced.update / TICKS,
    }
    return {**parts, "waiting": plan.seconds - sum(parts.values())}
