"""What the puzzles of this chapter are tried with: small whole numbers, and what a single device makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..trial import Call, Trial
from ..two_layers import DEVICES, SIZES, W0, W1, columns, model, rows, single


def tensor_parallel() -> Trial:
    params, x, g = model()
    out, grads = single(params, x, g)
    wanted = [{W0: a, W1: b, "x": grads["x"]} for a, b in zip(columns(grads[W0]), rows(grads[W1]))]
    return Trial(
        SIZES, params, (Call("forward", [x] * DEVICES, [out] * DEVICES), Call("backward", [g] * DEVICES, wanted))
    )


def sequence_parallel() -> Trial:
    params, x, g = model()
    out, grads = single(params, x, g)
    parts = zip(columns(grads[W0]), rows(grads[W1]), rows(grads["x"]))
    wanted = [{W0: a, W1: b, "x": c} for a, b, c in parts]
    return Trial(SIZES, params, (Call("forward", rows(x), rows(out)), Call("backward", rows(g), wanted)))


TRIALS: Mapping[str, tuple[Callable[[], Trial], ...]] = {
    "TensorParallel": (tensor_parallel,),
    "SequenceParallel": (sequence_parallel,),
}
