"""What the puzzles of this chapter are tried with: small whole numbers, and what a single device makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..trial import Call, Trial
from ..two_layers import DEVICES, SIZES, W0, W1, drawn, model, rows, single
from .memory_trials import zero_memory, zero_memory_others
from .uneven_trials import uneven_fsdp, uneven_small, uneven_tiny

RATE, MOMENTUM = 0.5, 0.5
Tensors = dict[str, Any]


def data_parallel() -> Trial:
    params, x, g = model()
    out, grads = single(params, x, g)
    whole = {W0: grads[W0], W1: grads[W1]}
    return Trial(SIZES, params, (Call("forward", rows(x), rows(out)), Call("backward", rows(g), [whole] * DEVICES)))


def ring_all_reduce() -> Trial:
    arrays = [drawn(10 + i, 2048) for i in range(DEVICES)]
    return Trial({}, {}, (Call("forward", arrays, [sum(arrays)] * DEVICES),))


def stepped(params: Tensors, state: Tensors, grads: Tensors, rate: float) -> tuple[Tensors, Tensors]:
    """Parameters and momentum after a step."""
    state = {name: MOMENTUM * state[name] + grads[name] for name in params}
    return {name: (params[name] - rate * state[name]).astype(np.float32) for name in params}, state


def zero1() -> Trial:
    params, x, g = model(most=1)
    state = {name: np.zeros_like(value) for name, value in params.items()}
    calls: list[Call] = []
    for _ in range(2):
        out, grads = single(params, x, g)
        params, state = stepped(params, state, grads, RATE)
        calls += [Call("forward", rows(x), rows(out)), Call("backward", rows(g), [params] * DEVICES)]
    return Trial({**SIZES, "rate": RATE, "momentum": MOMENTUM}, model(most=1)[0], tuple(calls))


def zero2() -> Trial:
    return zero2_steps(*model(most=1), DEVICES, (RATE,))


def zero2_again() -> Trial:
    """Two devices, another width, and three steps with another rate each: the state and its order matter."""
    params = {W0: drawn(11, 8, 12, most=1), W1: drawn(12, 12, 8, most=1)}
    return zero2_steps(params, drawn(13, 6, 8, most=1), drawn(14, 6, 8, most=1), 2, (0.5, 0.25, 0.5))


def zero2_steps(start: Tensors, x: Any, g: Any, n: int, rates: Sequence[float]) -> Trial:
    params, state = start, {name: np.zeros_like(value) for name, value in start.items()}
    calls: list[Call] = []
    for rate in rates:
        out, grads = single(params, x, g)
        cut = {name: np.split(grads[name], n) for name in params}
        params, state = stepped(params, state, grads, rate)
        shards = [{name: cut[name][i] for name in params} for i in range(n)]
        calls += [Call("forward", np.split(x, n), np.split(out, n)), Call("backward", np.split(g, n), shards)]
        calls.append(Call("step", [rate] * n, [params] * n))
    model_dim, hidden_dim = start[W0].shape
    sizes = {"model_dim": model_dim, "hidden_dim": hidden_dim, "momentum": MOMENTUM}
    return Trial(sizes, start, tuple(calls), devices=n, targets=zero2_targets(*x.shape, hidden_dim, n, len(rates)))


def zero2_targets(batch: int, model_dim: int, hidden_dim: int, n: int, steps: int) -> dict[str, int]:
    """As the puzzle's arithmetic has them, for other sizes."""
    weights = 2 * 4 * model_dim * hidden_dim
    activations = 4 * batch // n * (3 * model_dim + 2 * hidden_dim)
    return {
        "sent": steps * 2 * (n - 1) * weights // n,
        "flops": steps * 5 * 2 * batch // n * model_dim * hidden_dim,
        "peak": weights + weights // n + weights // 2 + weights // n + activations,
        "kept": weights + weights // n,
    }


def fsdp(with_dx: bool = True) -> Trial:
    params, x, g = model()
    out, grads = single(params, x, g)
    shards = zip(rows(grads[W0]), rows(grads[W1]), rows(grads["x"]))
    wanted = [{W0: a, W1: b, **({"x": c} if with_dx else {})} for a, b, c in shards]
    return Trial(SIZES, params, (Call("forward", rows(x), rows(out)), Call("backward", rows(g), wanted)))


def fsdp_lean() -> Trial:
    return fsdp(with_dx=False)


TRIALS: Mapping[str, tuple[Callable[[], Trial], ...]] = {
    "DataParallel": (data_parallel,),
    "OneBucket": (data_parallel,),
    "RingAllReduce": (ring_all_reduce,),
    "ZeRO1": (zero1,),
    "ZeRO2": (zero2, zero2_again),
    "FSDP": (fsdp,),
    "FSDPLean": (fsdp_lean,),
    "UnevenFSDP": (uneven_fsdp, uneven_small, uneven_tiny),
    "ZeROMemory": (zero_memory, zero_memory_others),
}
