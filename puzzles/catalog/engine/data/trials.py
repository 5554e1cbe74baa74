"""What the puzzles of this chapter are tried with: small whole numbers, and what a single device makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from puzzles.catalog.engine.trial import Call, Trial
from puzzles.catalog.engine.two_layers import DEVICES, OTHER, SHOWN, W0, W1, TwoLayers, drawn, single

from .memory_trials import zero_memory, zero_memory_others
from .uneven_trials import uneven_fsdp, uneven_small, uneven_tiny

RATE, MOMENTUM = 0.5, 0.5
Tensors = dict[str, Any]


def data_parallel(at: TwoLayers = SHOWN) -> Trial:
    params, x, g = at.drawn()
    out, grads = single(params, x, g)
    whole = {W0: grads[W0], W1: grads[W1]}
    calls = (Call("forward", at.rows(x), at.rows(out)), Call("backward", at.rows(g), [whole] * at.devices))
    return at.trial(params, calls)


def ring_all_reduce(devices: int = DEVICES, size: int = 2048) -> Trial:
    arrays = [drawn(10 + i, size) for i in range(devices)]
    calls = (Call("forward", arrays, [sum(arrays)] * devices),)
    shown = devices == DEVICES
    return Trial(calls=calls, devices=devices, targets=None if shown else {}, hidden=not shown)


def stepped(params: Tensors, state: Tensors, grads: Tensors, rate: float) -> tuple[Tensors, Tensors]:
    """Parameters and momentum after a step."""
    state = {name: MOMENTUM * state[name] + grads[name] for name in params}
    return {name: (params[name] - rate * state[name]).astype(np.float32) for name in params}, state


def zero1(at: TwoLayers = SHOWN) -> Trial:
    start, x, g = at.drawn(most=1)
    params, state = start, {name: np.zeros_like(value) for name, value in start.items()}
    calls: list[Call] = []
    for _ in range(2):
        out, grads = single(params, x, g)
        params, state = stepped(params, state, grads, RATE)
        calls += [Call("forward", at.rows(x), at.rows(out)), Call("backward", at.rows(g), [params] * at.devices)]
    return at.trial(start, calls, rate=RATE, momentum=MOMENTUM)


def zero2() -> Trial:
    return zero2_steps(*SHOWN.drawn(most=1), DEVICES, (RATE,))


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


def fsdp(at: TwoLayers = SHOWN, with_dx: bool = True) -> Trial:
    params, x, g = at.drawn()
    out, grads = single(params, x, g)
    shards = zip(at.rows(grads[W0]), at.rows(grads[W1]), at.rows(grads["x"]))
    wanted = [{W0: a, W1: b, **({"x": c} if with_dx else {})} for a, b, c in shards]
    calls = (Call("forward", at.rows(x), at.rows(out)), Call("backward", at.rows(g), wanted))
    return at.trial(params, calls)


TRIALS: Mapping[str, tuple[Callable[[], Trial], ...]] = {
    "DataParallel": (data_parallel, partial(data_parallel, OTHER)),
    "OneBucket": (data_parallel, partial(data_parallel, OTHER)),
    "RingAllReduce": (ring_all_reduce, partial(ring_all_reduce, 3, 96)),
    "ZeRO1": (zero1, partial(zero1, OTHER)),
    "ZeRO2": (zero2, zero2_again),
    "FSDP": (fsdp, partial(fsdp, OTHER)),
    "FSDPLean": (partial(fsdp, with_dx=False), partial(fsdp, OTHER, with_dx=False)),
    "UnevenFSDP": (uneven_fsdp, uneven_small, uneven_tiny),
    "ZeROMemory": (zero_memory, zero_memory_others),
}
