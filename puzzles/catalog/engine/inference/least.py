"""The least figures of the inference puzzles, whose weights are on hosts and disks."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from puzzles.catalog.engine import least
from puzzles.catalog.engine.least import Least, MakeLeasts
from puzzles.catalog.engine.trial import Trial


def forward_passes(trial: Trial) -> dict[str, Least]:
    count = sum(
        least.chain_products(trial.params, np.concatenate(call.arguments), relu_first=False) for call in trial.calls
    )
    work = least.flops(count, trial.devices)
    elsewhere = "weights may be kept on devices, hosts or disks"
    return {
        "sent": _sent(trial),
        "elapsed": work._replace(reason=f"the time is at least a device's flops: {work.reason}"),
        "peak": least.peak(trial),
        **{name: Least(0, elsewhere) for name in ("weights", "host_read", "disk_read", "host_peak", "host_loaded")},
    }


def _sent(trial: Trial) -> Least:
    """Something, if a device that reads the information of all weights itself reads more than a target allows, or takes
    longer."""
    targets, seconds = trial.targets or {}, trial.options.get("byte_time", {})
    read = int(least.information(trial.params))
    limits = [name for name in ("host_read", "disk_read") if name in targets]
    if limits and read > sum(targets[name] for name in limits):
        given = tuple(limits)
    elif read * min(seconds.values(), default=0) > targets.get("elapsed", read):
        given = ("elapsed",)
    else:
        return Least(0, "a device may read all weights itself")
    return least.something(
        "a device that reads all weights itself misses another target, so something is sent",
        ("weights", "peak", *given),
    )


LEAST: Mapping[str, MakeLeasts] = {
    "Stream": forward_passes,
    "Prefetch": forward_passes,
    "HostCache": forward_passes,
}
