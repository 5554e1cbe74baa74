"""The least figures of the data parallel puzzles."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from puzzles.catalog.engine import least
from puzzles.catalog.engine.least import Least, MakeLeasts
from puzzles.catalog.engine.trial import Trial


def own_rows(trial: Trial) -> Least:
    return least.leaves_device(least.arguments(trial, "forward", "backward"), "a device's rows and their gradient")


def trained(trial: Trial, with_dx: bool = False) -> Least:
    """Products of the first step; of the others only x @ w0, because their relu depends on the weights so far."""
    x, g = least.whole(trial, "forward"), least.whole(trial, "backward")
    count = least.mlp_products(trial.params, x, g, with_dx)
    steps = sum(call.method == "forward" for call in trial.calls)
    return least.flops(count + (steps - 1) * least.products(x, trial.params["layer_0/weights"]), trial.devices)


def ring(trial: Trial) -> dict[str, Least]:
    sent = least.leaves_device(least.arguments(trial, "forward"), "a device's numbers")
    return {**least.calls(), "sent": sent, "peak": least.peak(trial)}


def zero_memory(trial: Trial) -> dict[str, Least]:
    assert trial.targets is not None
    return {"peak": Least(trial.targets["peak"], "the arrays of the case with the largest plan are held at once")}


def any_of(trial: Trial, flops: Callable[[Trial], Least] = trained) -> dict[str, Least]:
    return {
        **least.calls(),
        "sent": own_rows(trial),
        "flops": flops(trial),
        "weights": least.weights(trial),
        "peak": least.peak(trial),
        "kept": least.kept(trial),
    }


def with_dx(trial: Trial) -> dict[str, Least]:
    return any_of(trial, lambda trial: trained(trial, with_dx=True))


LEAST: Mapping[str, MakeLeasts] = {
    "DataParallel": any_of,
    "OneBucket": any_of,
    "RingAllReduce": ring,
    "ZeRO1": any_of,
    "ZeRO2": any_of,
    "FSDP": with_dx,
    "FSDPLean": any_of,
    "UnevenFSDP": any_of,
    "ZeROMemory": zero_memory,
}
