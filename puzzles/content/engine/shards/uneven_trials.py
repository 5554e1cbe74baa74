"""Trials of UnevenFSDP: layers with a bias, whose sizes are not divisible by the devices, trained for two steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from puzzles.catalog.engine.trial import MethodCall, Performed, Trial, WrongResultError
from puzzles.catalog.engine.two_layer_mlp import BATCH, DEVICES, HIDDEN, ROUNDING, exact, mlp_forward_backward, numbers

MODEL, RATE, STEPS = 18, 0.5, 2
LAYERS = ("layer_0", "layer_1")
Tensors = dict[str, Any]


def uneven_fsdp() -> Trial:
    """4 devices; the second layer ends with two numbers of padding."""
    return uneven_fsdp_trial(BATCH, MODEL, HIDDEN, DEVICES)


def uneven_small() -> Trial:
    """3 devices, other sizes."""
    return uneven_fsdp_trial(6, 5, 7, 3)


def uneven_tiny() -> Trial:
    """8 devices, 9 numbers in the second layer: three devices hold only padding. There is no limit on the peak,
    because arrays of a few bytes peak elsewhere."""
    trial = uneven_fsdp_trial(8, 3, 2, 8)
    return replace(trial, targets={name: limit for name, limit in (trial.targets or {}).items() if name != "peak"})


def uneven_fsdp_trial(batch: int, model_dim: int, hidden_dim: int, n: int) -> Trial:
    shapes = {"layer_0": (model_dim, hidden_dim), "layer_1": (hidden_dim, model_dim)}
    params: Tensors = {}
    for i, (layer, shape) in enumerate(shapes.items()):
        params |= {
            f"{layer}/weights": numbers(40 + i, *shape),
            f"{layer}/bias": numbers(50 + i, shape[1]),
        }
    start, x, g = params, numbers(60, batch, model_dim), numbers(61, batch, model_dim)
    calls: list[MethodCall] = []
    states = []
    for _ in range(STEPS):
        out, grads = mlp_forward_backward(params, x, g)
        params = {name: value - RATE * grads[name] for name, value in exact(params).items()}
        states.append({layer: flat_shards(params, layer, n) for layer in LAYERS})
        # `check` compares the result of backward, because it knows where the padding is.
        calls += [MethodCall("forward", np.split(x, n), np.split(out, n)), MethodCall("backward", np.split(g, n))]
    calls.append(MethodCall("save", [list(LAYERS)] * n, [params] * n))

    def check(performed: Performed) -> None:
        for i, state in enumerate(states):
            for device, result in enumerate(performed.results[2 * i + 1]):
                for layer in LAYERS:
                    rows, columns = shapes[layer]
                    real = (rows + 1) * columns - device * state[layer][0].size
                    require_shard(result, layer, state[layer][device], max(real, 0), f"device {device}, backward()")

    sizes = {"model_dim": model_dim, "hidden_dim": hidden_dim, "rate": RATE}
    targets = uneven_targets(batch, model_dim, hidden_dim, n)
    return Trial(sizes, start, tuple(calls), devices=n, tolerance=ROUNDING, check=check, targets=targets)


def flat_shards(params: Mapping[str, Any], layer: str, n: int) -> list[Any]:
    """The expected shards of a layer: weights, bias and zeros in one row, cut into n parts."""
    row = np.concatenate([params[f"{layer}/weights"].ravel(), params[f"{layer}/bias"]])
    shards = np.zeros((n, -(-row.size // n)), row.dtype)
    shards.reshape(-1)[: row.size] = row
    return list(shards)


def require_shard(result: Any, layer: str, right: Any, real: int, where: str) -> None:
    """Compares a shard in which the first `real` numbers are weights or bias and the rest is padding.

    Raises:
        WrongResultError: it differs.
    """
    shard = result.get(layer) if isinstance(result, dict) else None
    if not isinstance(shard, np.ndarray) or shard.shape != right.shape:
        raise WrongResultError(f"{where} should return your flat shards; the one of '{layer}' has {right.size} numbers")
    off = ~(np.abs(shard[:real] - right[:real]) <= ROUNDING * np.abs(right).max())
    if off.any():
        at = int(np.nonzero(off)[0][0])
        raise WrongResultError(
            f"{where}: the shard of {layer} differs from its part of the flat layer: number {at} is {shard[at]:g} "
            f"but should be {right[at]:g}"
        )
    if shard[real:].any():
        raise WrongResultError(
            f"{where}: the shard of {layer} ends with padding, which belongs to no weight and should be 0; "
            f"it is {shard[real:].tolist()}"
        )


def uneven_targets(batch: int, model_dim: int, hidden_dim: int, n: int) -> dict[str, int]:
    """Limits from the puzzle's arithmetic; the peak is at the first layer's gradient, plus a shard."""
    first, second = (4 * -(-(prod(sizes)) // n) for sizes in ((model_dim + 1, hidden_dim), (hidden_dim + 1, model_dim)))
    weights, rows = 4 * model_dim * hidden_dim, batch // n
    activations = 4 * rows * (3 * model_dim + 2 * hidden_dim)
    peak = first + second + weights + 4 * hidden_dim + n * first + 2 * first + activations
    return {
        "sent": (n - 1) * (STEPS * (2 * first + 3 * second) + first + second),
        "flops": STEPS * 5 * 2 * batch // n * model_dim * hidden_dim,
        "collectives": STEPS * 5 + 2,
        "weights": first + second,
        "peak": peak,
    }
