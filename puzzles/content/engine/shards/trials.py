"""The trials of the sharded puzzles: batches and networks of the data parallel ones, with states to shard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from puzzles.catalog.engine.trial import MethodCall, Trial
from puzzles.catalog.engine.two_layer_mlp import (
    DEVICES,
    OTHER,
    ROUNDING,
    SHOWN,
    W0,
    W1,
    TwoLayerMLP,
    exact,
    mlp_forward_backward,
    numbers,
)

from .adam_trials import sharded_adam, sharded_adam_small
from .memory_trials import zero_memory, zero_memory_others
from .uneven_trials import uneven_fsdp, uneven_small, uneven_tiny

RATE, MOMENTUM = 0.5, 0.5
Tensors = dict[str, Any]


def stepped(params: Tensors, state: Tensors, grads: Tensors, rate: float) -> tuple[Tensors, Tensors]:
    """Parameters and momentum after a step of SGD with momentum."""
    state = {name: MOMENTUM * state[name] + grads[name] for name in params}
    return {name: params[name] - rate * state[name] for name in params}, state


def zero1(at: TwoLayerMLP = SHOWN) -> Trial:
    start, x, g = at.tensors()
    params, state = exact(start), {name: np.zeros(value.shape) for name, value in start.items()}
    calls: list[MethodCall] = []
    for _ in range(2):
        out, grads = mlp_forward_backward(params, x, g)
        params, state = stepped(params, state, grads, RATE)
        calls += at.calls_by_rows(x, out, g, [params] * at.devices)
    return at.trial(start, calls, rate=RATE, momentum=MOMENTUM)


def zero2() -> Trial:
    return zero2_steps(*SHOWN.tensors(), DEVICES, (RATE,))


def zero2_again() -> Trial:
    """Two devices, another width, and three steps with different rates: the state and its order matter."""
    params = {W0: numbers(11, 8, 12), W1: numbers(12, 12, 8)}
    return zero2_steps(params, numbers(13, 6, 8), numbers(14, 6, 8), 2, (0.5, 0.25, 0.5))


def zero2_steps(start: Tensors, x: Any, g: Any, n: int, rates: Sequence[float]) -> Trial:
    params, state = exact(start), {name: np.zeros(value.shape) for name, value in start.items()}
    calls: list[MethodCall] = []
    for rate in rates:
        out, grads = mlp_forward_backward(params, x, g)
        cut = {name: np.split(grads[name], n) for name in params}
        params, state = stepped(params, state, grads, rate)
        shards = [{name: cut[name][i] for name in params} for i in range(n)]
        calls += [
            MethodCall("forward", np.split(x, n), np.split(out, n)),
            MethodCall("backward", np.split(g, n), shards),
        ]
        calls.append(MethodCall("step", [rate] * n, [params] * n))
    model_dim, hidden_dim = start[W0].shape
    sizes = {"model_dim": model_dim, "hidden_dim": hidden_dim, "momentum": MOMENTUM}
    targets = zero2_targets(len(x), model_dim, hidden_dim, n, len(rates))
    return Trial(sizes, start, tuple(calls), devices=n, tolerance=ROUNDING, targets=targets)


def zero2_targets(batch: int, model_dim: int, hidden_dim: int, n: int, steps: int) -> dict[str, int]:
    """Limits from the puzzle's arithmetic, for any sizes."""
    weights = 2 * 4 * model_dim * hidden_dim
    activations = 4 * batch // n * (3 * model_dim + 2 * hidden_dim)
    return {
        "sent": steps * 2 * (n - 1) * weights // n,
        "flops": steps * 5 * 2 * batch // n * model_dim * hidden_dim,
        "collectives": 4 * steps,
        "peak": weights + weights // n + weights // 2 + weights // n + activations,
        "kept": weights + weights // n,
    }


def fsdp(at: TwoLayerMLP = SHOWN) -> Trial:
    params, x, g = at.tensors()
    out, grads = mlp_forward_backward(params, x, g)
    shards = zip(at.split_rows(grads[W0]), at.split_rows(grads[W1]), at.split_rows(grads["x"]))
    wanted = [{W0: a, W1: b, "x": c} for a, b, c in shards]
    return at.trial(params, at.calls_by_rows(x, out, g, wanted))


TRIALS: Mapping[str, tuple[Callable[[], Trial], ...]] = {
    "ZeRO1": (zero1, partial(zero1, OTHER)),
    "ZeRO2": (zero2, zero2_again),
    "FSDP": (fsdp, partial(fsdp, OTHER)),
    "UnevenFSDP": (uneven_fsdp, uneven_small, uneven_tiny),
    "ShardedAdam": (sharded_adam, sharded_adam_small),
    "ZeROMemory": (zero_memory, zero_memory_others),
}
