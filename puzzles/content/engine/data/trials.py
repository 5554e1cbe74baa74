"""Trials of the data parallel puzzles, and the results of a single device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from puzzles.catalog.engine import lower_bounds
from puzzles.catalog.engine.lower_bounds import FigureBound, MakeBounds
from puzzles.catalog.engine.models import (
    DEVICES,
    OTHER,
    ROUNDING,
    SHOWN,
    W0,
    W1,
    TwoLayerMLP,
    numbers,
)
from puzzles.catalog.engine.trial import MethodCall, Trial

# --- Trials of ParameterServer: linear regression, with gradients in the order in which they arrive at the servers.


RATE = 0.125


def parameter_server(
    dim: int = 64, servers: int = 2, rows: Sequence[int] = (16, 16, 16, 48), rounds: int = 9, seed: int = 20
) -> Trial:
    """Workers with so many examples; the one with the fewest makes a gradient in each of these rounds."""
    start, n = numbers(seed, dim), servers + len(rows)
    examples = [
        {"x": numbers(seed + i, size, dim), "y": numbers(seed + 50 + i, size)} for i, size in enumerate(rows, 1)
    ]
    order = arrivals(rows, rounds, servers)
    steps = [order.count(servers + i) for i in range(len(rows))]
    arguments: list[Any] = [{"order": order}] * servers
    arguments += [{**given, "steps": count} for given, count in zip(examples, steps)]

    def results(**mistake: Any) -> list[Any]:
        w = trained(start, examples, order, servers, **mistake)
        return [*np.split(w, servers), *[None] * len(rows)]

    mistakes = {
        "are gradients computed from newer weights than their workers fetched?": results(fresh=True),
        "is a gradient divided by the number of workers? Each is a step of its own": results(share=len(rows)),
        "does a worker go on with its first weights? It fetches after each gradient but the last": results(fetch=False),
    }
    return Trial(
        {"dim": dim, "servers": servers, "rate": RATE},
        {"weights": start},
        (MethodCall("forward", arguments, results(), mistakes),),
        devices=n,
        tolerance=ROUNDING,
        targets=server_targets(dim, servers, rows, steps),
    )


def arrivals(rows: Sequence[int], rounds: int, servers: int) -> list[int]:
    """The workers in the order in which their gradients arrive, if a gradient takes as long as there are examples."""
    last = rounds * min(rows)
    ends = [(size * (i + 1), servers + worker) for worker, size in enumerate(rows) for i in range(last // size)]
    return [worker for _, worker in sorted(ends)]


def trained(
    start: Any,
    examples: Sequence[Mapping[str, Any]],
    order: Sequence[int],
    servers: int,
    fresh: bool = False,
    share: int = 1,
    fetch: bool = True,
) -> Any:
    """The weights after all gradients, in float64. The last three arguments are mistakes."""
    w = start.astype(np.float64)
    fetched = [w] * len(examples)
    for worker in order:
        x, y = (examples[worker - servers][name].astype(np.float64) for name in ("x", "y"))
        at = w if fresh else fetched[worker - servers]
        w = w - RATE * (x.T @ (x @ at - y)) / len(y) / share
        if fetch:
            fetched[worker - servers] = w
    return w


def server_targets(dim: int, servers: int, rows: Sequence[int], steps: Sequence[int]) -> dict[str, int]:
    """Limits from the puzzle's arithmetic."""
    part = 4 * dim // servers
    fetches = sum(steps) - len(rows)
    return {
        "sent": max(fetches * part, max(steps) * servers * part),
        "messages": max(fetches, max(steps) * servers),
        "collectives": 0,
        "elapsed": max(4 * size * dim * count for size, count in zip(rows, steps)),
    }


# --- The trials of the chapter


def data_parallel(at: TwoLayerMLP = SHOWN) -> Trial:
    return at.trained_by_rows({W0: at.on_each, W1: at.on_each})


def ring_all_reduce(devices: int = DEVICES, size: int = 2048) -> Trial:
    arrays = [numbers(10 + i, size) for i in range(devices)]
    calls = (MethodCall("forward", arrays, [np.sum(arrays, axis=0, dtype=np.float64)] * devices),)
    shown = devices == DEVICES
    return Trial(calls=calls, devices=devices, tolerance=ROUNDING, targets=None if shown else {}, hidden=not shown)


TRIALS: Mapping[str, tuple[Callable[[], Trial], ...]] = {
    "DataParallel": (data_parallel, partial(data_parallel, OTHER)),
    "OneBucket": (data_parallel, partial(data_parallel, OTHER)),
    "RingAllReduce": (ring_all_reduce, partial(ring_all_reduce, 3, 96)),
    "ParameterServer": (
        parameter_server,
        partial(parameter_server, 24, 3, (4, 8, 12), 6, seed=31),  # no worker is as fast as another
    ),
}


# --- What no class can do with less ---


def trained_bounds(trial: Trial, with_dx: bool = False) -> FigureBound:
    """Products of the first step; of the others only x @ w0, because their relu depends on the weights so far."""
    x, g = lower_bounds.whole(trial, "forward"), lower_bounds.whole(trial, "backward")
    count = lower_bounds.mlp_products(trial.params, x, g, with_dx)
    steps = sum(call.method == "forward" for call in trial.calls)
    return lower_bounds.flops(
        count + (steps - 1) * lower_bounds.products(x, trial.params["layer_0/weights"]), trial.devices
    )


def ring(trial: Trial) -> dict[str, FigureBound]:
    sent = lower_bounds.leaves_device(lower_bounds.arguments(trial, "forward"), "a device's numbers")
    return {"sent": sent}


def parameter_server_bounds(trial: Trial) -> dict[str, FigureBound]:
    """Every worker makes two products for each of its gradients, or another device does after receiving its rows."""
    given = [one for (one,) in lower_bounds.arguments(trial, "forward") if "steps" in one]
    work = lower_bounds.flops(sum(2 * one["x"].size * one["steps"] for one in given), trial.devices)
    return {
        "sent": lower_bounds.something("the servers have no examples"),
        "elapsed": work._replace(reason=f"the time is at least a device's flops: {work.reason}"),
    }


def any_of(trial: Trial, flops: Callable[[Trial], FigureBound] = trained_bounds) -> dict[str, FigureBound]:
    own = lower_bounds.arguments(trial, "forward", "backward")
    return {"sent": lower_bounds.leaves_device(own, "a device's rows and their gradient"), "flops": flops(trial)}


LOWER_BOUNDS: Mapping[str, MakeBounds] = {
    "DataParallel": any_of,
    "OneBucket": any_of,
    "RingAllReduce": ring,
    "ParameterServer": parameter_server_bounds,
}
