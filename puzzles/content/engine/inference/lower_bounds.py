"""The least figures of the inference puzzles: weights on hosts and disks, or keys and values in a cache."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from puzzles.catalog.engine import lower_bounds
from puzzles.catalog.engine.lower_bounds import FigureBound, MakeBounds
from puzzles.catalog.engine.trial import Trial


def forward_passes(trial: Trial) -> dict[str, FigureBound]:
    count = sum(
        lower_bounds.chain_products(trial.params, np.concatenate(call.arguments), relu_first=False)
        for call in trial.calls
    )
    work = lower_bounds.flops(count, trial.devices)
    elsewhere = "weights may be kept on devices, hosts or disks"
    return {
        **lower_bounds.calls(),
        "sent": _sent(trial),
        "elapsed": work._replace(reason=f"the time is at least a device's flops: {work.reason}"),
        "peak": lower_bounds.peak(trial),
        **{
            name: FigureBound(0, elsewhere)
            for name in ("weights", "host_read", "disk_read", "host_peak", "host_loaded")
        },
    }


def _sent(trial: Trial) -> FigureBound:
    """Something, if a device that reads the information of all weights itself reads more than a target allows, or takes
    longer."""
    targets, seconds = trial.targets or {}, trial.options.get("byte_time", {})
    read = int(lower_bounds.information(trial.params))
    limits = [name for name in ("host_read", "disk_read") if name in targets]
    if limits and read > sum(targets[name] for name in limits):
        given = tuple(limits)
    elif read * min(seconds.values(), default=0) > targets.get("elapsed", read):
        given = ("elapsed",)
    else:
        return FigureBound(0, "a device may read all weights itself")
    return lower_bounds.something(
        "a device that reads all weights itself misses another target, so something is sent",
        ("weights", "peak", *given),
    )


def prefill_decode(trial: Trial) -> dict[str, FigureBound]:
    """Every token goes through the four weights once, except the last that is generated."""
    prompts = trial.calls[0].arguments[0]
    tokens = sum(map(len, prompts)) + len(prompts) * (trial.arguments["tokens"] - 1)
    work = lower_bounds.flops(4 * tokens * trial.arguments["model_dim"] ** 2, trial.devices)
    return {
        **lower_bounds.calls(),
        "sent": lower_bounds.something("the devices that generate are given no prompts"),
        "elapsed": work._replace(reason=f"the time is at least a device's flops: {work.reason}"),
        "weights": lower_bounds.weights(trial),
    }


LOWER_BOUNDS: Mapping[str, MakeBounds] = {
    "Stream": forward_passes,
    "Prefetch": forward_passes,
    "HostCache": forward_passes,
    "PrefillDecode": prefill_decode,
}
