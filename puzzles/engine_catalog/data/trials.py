"""What the puzzles of this chapter are tried with: small whole numbers, and what a single device makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ..trial import Call, Trial
from ..two_layers import DEVICES, SIZES, W0, W1, drawn, model, rows, single

RATE, MOMENTUM = 0.5, 0.5


def data_parallel() -> Trial:
    params, x, g = model()
    out, grads = single(params, x, g)
    whole = {W0: grads[W0], W1: grads[W1]}
    return Trial(SIZES, params, (Call("forward", rows(x), rows(out)), Call("backward", rows(g), [whole] * DEVICES)))


def ring_all_reduce() -> Trial:
    arrays = [drawn(10 + i, 2048) for i in range(DEVICES)]
    return Trial({}, {}, (Call("forward", arrays, [sum(arrays)] * DEVICES),))


def zero1() -> Trial:
    params, x, g = model(most=1)
    state = {name: np.zeros_like(value) for name, value in params.items()}
    calls: list[Call] = []
    for _ in range(2):
        out, grads = single(params, x, g)
        state = {name: MOMENTUM * state[name] + grads[name] for name in params}
        params_after = {name: (params[name] - RATE * state[name]).astype(np.float32) for name in params}
        calls += [Call("forward", rows(x), rows(out)), Call("backward", rows(g), [params_after] * DEVICES)]
        params = params_after
    return Trial({**SIZES, "rate": RATE, "momentum": MOMENTUM}, model(most=1)[0], tuple(calls))


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
    "FSDP": (fsdp,),
    "FSDPLean": (fsdp_lean,),
}
