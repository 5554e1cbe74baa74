"""The least figures of the data parallel puzzles."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from puzzles.catalog.engine import lower_bounds
from puzzles.catalog.engine.lower_bounds import FigureBound, MakeBounds
from puzzles.catalog.engine.trial import Trial


def own_rows(trial: Trial) -> FigureBound:
    return lower_bounds.leaves_device(
        lower_bounds.arguments(trial, "forward", "backward"), "a device's rows and their gradient"
    )


def trained(trial: Trial, with_dx: bool = False) -> FigureBound:
    """Products of the first step; of the others only x @ w0, because their relu depends on the weights so far."""
    x, g = lower_bounds.whole(trial, "forward"), lower_bounds.whole(trial, "backward")
    count = lower_bounds.mlp_products(trial.params, x, g, with_dx)
    steps = sum(call.method == "forward" for call in trial.calls)
    return lower_bounds.flops(
        count + (steps - 1) * lower_bounds.products(x, trial.params["layer_0/weights"]), trial.devices
    )


def ring(trial: Trial) -> dict[str, FigureBound]:
    sent = lower_bounds.leaves_device(lower_bounds.arguments(trial, "forward"), "a device's numbers")
    return {**lower_bounds.calls(), "sent": sent, "peak": lower_bounds.peak(trial)}


def parameter_server(trial: Trial) -> dict[str, FigureBound]:
    """Every worker makes two products for each of its gradients, or another device does after receiving its rows."""
    given = [one for (one,) in lower_bounds.arguments(trial, "forward") if "steps" in one]
    work = lower_bounds.flops(sum(2 * one["x"].size * one["steps"] for one in given), trial.devices)
    return {
        **lower_bounds.calls(),
        "sent": lower_bounds.something("the servers have no examples"),
        "elapsed": work._replace(reason=f"the time is at least a device's flops: {work.reason}"),
    }


def any_of(trial: Trial, flops: Callable[[Trial], FigureBound] = trained) -> dict[str, FigureBound]:
    return {
        **lower_bounds.calls(),
        "sent": own_rows(trial),
        "flops": flops(trial),
        "weights": lower_bounds.weights(trial),
        "peak": lower_bounds.peak(trial),
        "kept": lower_bounds.kept(trial),
    }


LOWER_BOUNDS: Mapping[str, MakeBounds] = {
    "DataParallel": any_of,
    "OneBucket": any_of,
    "RingAllReduce": ring,
    "ParameterServer": parameter_server,
}
