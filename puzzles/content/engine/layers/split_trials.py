"""Trials of LayerSplit and GPipeRemat: training a chain of layers x = relu(x) @ w.

Weights are scaled so that activations keep their size through sixteen layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lib.engine.call import WORD
from puzzles.catalog.engine.trial import MethodCall, Trial
from puzzles.catalog.engine.two_layer_mlp import BATCH, DEVICES, MODEL, ROUNDING, exact, numbers

Tensors = dict[str, Any]


def layer_split() -> Trial:
    return layer_split_trial(BATCH, MODEL, DEVICES, steps=1)


def layer_split_again() -> Trial:
    """Three devices, and two batches one after the other."""
    return layer_split_trial(5, 6, 3, steps=2)


def gpipe_remat() -> Trial:
    return gpipe_trial(BATCH, MODEL, 16, DEVICES, 4)


def gpipe_remat_others() -> Trial:
    """Three devices with four layers each, three microbatches."""
    return gpipe_trial(6, 8, 12, 3, 3)


def square(seed: int, dim: int) -> Any:
    """A square matrix whose product with relu of random numbers keeps their size: of variance 2 / dim."""
    return numbers(seed, dim, dim) * np.float32((6 / dim) ** 0.5)


def chain_forward_backward(params: Tensors, x: Any, g: Any) -> tuple[Any, Tensors]:
    """Output and gradients on one device; 'x' is the gradient of the input."""
    params, inputs, x, g = exact(params), [], np.asarray(x, np.float64), np.asarray(g, np.float64)
    for weight in params.values():
        inputs.append(x)
        x = np.maximum(x, 0) @ weight
    grads: Tensors = {}
    for name, weight in reversed(params.items()):
        before = inputs.pop()
        grads[name] = np.maximum(before, 0).T @ g
        g = (g @ weight.T) * (before > 0)
    return x, {**grads, "x": g}


def random_layers(seed: int, dim: int, layers: int) -> Tensors:
    """Parameters of a chain of layers."""
    return {f"layer_{i}/weights": square(seed + i, dim) for i in range(layers)}


def at_ends(first: Any, last: Any, n: int) -> list[Any]:
    """Arguments or results of all devices: given for the first and the last, None for those in between."""
    return [first, *[None] * (n - 2), last]


def parts_of(grads: Tensors, names: Sequence[str], n: int) -> list[Tensors]:
    """The gradients that each device returns: of its own layers."""
    each = len(names) // n
    return [{name: grads[name] for name in names[i * each : (i + 1) * each]} for i in range(n)]


def layer_split_trial(batch: int, dim: int, n: int, steps: int) -> Trial:
    params = random_layers(74, dim, n)
    calls: list[MethodCall] = []
    for step in range(steps):
        x, g = numbers(80 + step, batch, dim), numbers(90 + step, batch, dim)
        out, grads = chain_forward_backward(params, x, g)
        wanted = parts_of(grads, list(params), n)
        wanted[0]["x"] = grads["x"]
        calls.append(MethodCall("forward", at_ends(x, None, n), at_ends(None, out, n)))
        calls.append(MethodCall("backward", at_ends(None, g, n), wanted))
    targets = split_targets(batch, dim, n, steps)
    return Trial({"model_dim": dim}, params, tuple(calls), devices=n, tolerance=ROUNDING, targets=targets)


def split_targets(batch: int, dim: int, n: int, steps: int) -> dict[str, int]:
    """Limits from the puzzle's arithmetic."""
    message, product = 4 * batch * dim + WORD, 2 * batch * dim * dim
    return {
        "sent": steps * 2 * message,
        "messages": steps * 2,
        "collectives": 0,
        "flops": steps * 3 * product,
        "weights": 4 * dim * dim,
        "clock": steps * 3 * product * n,
    }


def gpipe_trial(batch: int, dim: int, layers: int, n: int, microbatches: int) -> Trial:
    params = random_layers(74, dim, layers)
    x, g = numbers(80, batch, dim), numbers(90, batch, dim)
    out, grads = chain_forward_backward(params, x, g)
    calls = (
        MethodCall("forward", at_ends(x, None, n), at_ends(None, out, n)),
        MethodCall("backward", at_ends(None, g, n), parts_of(grads, list(params), n)),
    )
    sizes = {"model_dim": dim, "layers": layers, "microbatches": microbatches}
    targets = gpipe_targets(batch // microbatches, dim, layers // n, n, microbatches)
    return Trial(sizes, params, calls, devices=n, tolerance=ROUNDING, targets=targets)


def gpipe_targets(rows: int, dim: int, each: int, n: int, microbatches: int) -> dict[str, int]:
    """Limits from the puzzle's arithmetic, for `each` layers per device and `rows` per microbatch."""
    boundary, forward = 4 * rows * dim, each * 2 * rows * dim * dim
    return {
        "sent": 2 * microbatches * (boundary + WORD),
        "messages": 2 * microbatches,
        "collectives": 0,
        "flops": 4 * microbatches * forward,
        "weights": 2 * each * 4 * dim * dim,
        "stored": (microbatches + each - 1) * boundary,
        "clock": (microbatches + n - 1 + 3 * microbatches + 2 * (n - 1)) * forward,
    }
