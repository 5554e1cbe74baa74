"""What UnevenFSDP is tried with: layers with a bias that no number of devices divides, trained for two steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from puzzles.catalog.engine.trial import Call, Performed, Trial, Wrong
from puzzles.catalog.engine.two_layers import BATCH, DEVICES, HIDDEN, drawn

MODEL, RATE, STEPS = 18, 0.5, 2
LAYERS = ("layer_0", "layer_1")
Tensors = dict[str, Any]


def uneven_fsdp() -> Trial:
    """4 devices; two numbers of padding at the end of the second layer."""
    return trained(BATCH, MODEL, HIDDEN, DEVICES)


def uneven_small() -> Trial:
    """3 devices, other sizes."""
    return trained(6, 5, 7, 3)


def uneven_tiny() -> Trial:
    """8 devices, 9 numbers in the second layer: three devices have nothing but padding. Arrays of a few bytes have
    their peak elsewhere, so here it is not judged."""
    trial = trained(8, 3, 2, 8)
    return replace(trial, targets={name: limit for name, limit in (trial.targets or {}).items() if name != "peak"})


def trained(batch: int, model_dim: int, hidden_dim: int, n: int) -> Trial:
    shapes = {"layer_0": (model_dim, hidden_dim), "layer_1": (hidden_dim, model_dim)}
    params: Tensors = {}
    for i, (layer, shape) in enumerate(shapes.items()):
        params |= {f"{layer}/weights": drawn(40 + i, *shape, most=1), f"{layer}/bias": drawn(50 + i, shape[1], most=1)}
    start, x, g = params, drawn(60, batch, model_dim, most=1), drawn(61, batch, model_dim, most=1)
    calls: list[Call] = []
    states = []
    for _ in range(STEPS):
        out, grads = single(params, x, g)
        params = {name: value - np.float32(RATE) * grads[name] for name, value in params.items()}
        states.append({layer: flat_shards(params, layer, n) for layer in LAYERS})
        # What backward returns is looked at by `check`, which knows what is padding.
        calls += [Call("forward", np.split(x, n), np.split(out, n)), Call("backward", np.split(g, n))]
    calls.append(Call("save", [list(LAYERS)] * n, [params] * n))

    def check(performed: Performed) -> None:
        for i, state in enumerate(states):
            for device, result in enumerate(performed.results[2 * i + 1]):
                for layer in LAYERS:
                    rows, columns = shapes[layer]
                    real = (rows + 1) * columns - device * state[layer][0].size
                    look_at(result, layer, state[layer][device], max(real, 0), f"device {device}, backward()")

    sizes = {"model_dim": model_dim, "hidden_dim": hidden_dim, "rate": RATE}
    targets = uneven_targets(batch, model_dim, hidden_dim, n)
    return Trial(sizes, start, tuple(calls), devices=n, check=check, targets=targets)


def single(params: Mapping[str, Any], x: Any, g: Any) -> tuple[Any, Tensors]:
    """Output and gradients on one device."""
    (w0, b0), (w1, b1) = ([params[f"{layer}/{part}"] for part in ("weights", "bias")] for layer in LAYERS)
    z = x @ w0 + b0
    h = np.maximum(z, 0)
    dz = (g @ w1.T) * (z > 0)
    grads = (x.T @ dz, dz.sum(0), h.T @ g, g.sum(0))
    return h @ w1 + b1, dict(zip(params, grads))


def flat_shards(params: Mapping[str, Any], layer: str, n: int) -> list[Any]:
    """The shards of a layer, as they should be: weights, bias, zeros, in one row."""
    row = np.concatenate([params[f"{layer}/weights"].ravel(), params[f"{layer}/bias"]])
    shards = np.zeros((n, -(-row.size // n)), row.dtype)
    shards.reshape(-1)[: row.size] = row
    return list(shards)


def look_at(result: Any, layer: str, right: Any, real: int, where: str) -> None:
    """Raises `Wrong`, if a shard is not what it should be; its first `real` numbers are weights or bias."""
    shard = result.get(layer) if isinstance(result, dict) else None
    if not isinstance(shard, np.ndarray) or shard.shape != right.shape:
        raise Wrong(f"{where} should return your flat shards, under '{layer}' one of {right.size} numbers")
    if not np.array_equal(shard[:real], right[:real]):
        at = int(np.nonzero(shard[:real] != right[:real])[0][0])
        raise Wrong(
            f"{where}: the shard of {layer} differs from that part of the flat layer: number {at} is {shard[at]:g} "
            f"and should be {right[at]:g}"
        )
    if shard[real:].any():
        raise Wrong(
            f"{where}: the shard of {layer} ends in padding, which belongs to no weight and should be 0; "
            f"it is {shard[real:].tolist()}"
        )


def uneven_targets(batch: int, model_dim: int, hidden_dim: int, n: int) -> dict[str, int]:
    """As the puzzle's arithmetic has them; the peak is that of the first layer's gradient, and a shard."""
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
