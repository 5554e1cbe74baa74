"""What each engine puzzle is tried with: exact small whole numbers, and what a single device makes of them.

The model is relu(x @ w0) @ w1 with a batch of 8, model_dim 16, hidden_dim 64, in float32, on 4 devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

DEVICES, BATCH, MODEL, HIDDEN = 4, 8, 16, 64
RATE, MOMENTUM = 0.5, 0.5
W0, W1 = "layer_0/weights", "layer_1/weights"


@dataclass(frozen=True)
class Trial:
    """Arguments of the class; parameters; then calls in order: method, each device's argument and expected result
    (None: not looked at). With `stream`, inputs and expected outputs of an inference loop instead."""

    arguments: Mapping[str, Any]
    params: Mapping[str, Any]
    calls: tuple[tuple[str, list[Any], list[Any] | None], ...] = ()
    stream: tuple[list[Any], list[Any]] | None = None


def drawn(seed: int, *shape: int, most: int = 2) -> Any:
    return np.random.default_rng(seed).integers(-most, most + 1, shape).astype(np.float32)


def model(most: int = 2) -> tuple[dict[str, Any], Any, Any]:
    """Parameters, the input of the whole batch, the gradient of the output."""
    params = {W0: drawn(1, MODEL, HIDDEN, most=most), W1: drawn(2, HIDDEN, MODEL, most=most)}
    return params, drawn(3, BATCH, MODEL, most=most), drawn(4, BATCH, MODEL, most=most)


def single(params: Mapping[str, Any], x: Any, g: Any) -> tuple[Any, dict[str, Any]]:
    """Output and gradients on one device; 'x' is the gradient of the input."""
    z = x @ params[W0]
    h = np.maximum(z, 0)
    dz = (g @ params[W1].T) * (z > 0)
    return h @ params[W1], {W0: x.T @ dz, W1: h.T @ g, "x": dz @ params[W0].T}


def rows(array: Any) -> list[Any]:
    return list(np.split(array, DEVICES))


def columns(array: Any) -> list[Any]:
    return list(np.split(array, DEVICES, axis=1))


SIZES = {"model_dim": MODEL, "hidden_dim": HIDDEN}


def data_parallel() -> Trial:
    params, x, g = model()
    out, grads = single(params, x, g)
    whole = {W0: grads[W0], W1: grads[W1]}
    return Trial(SIZES, params, (("forward", rows(x), rows(out)), ("backward", rows(g), [whole] * DEVICES)))


def ring_all_reduce() -> Trial:
    arrays = [drawn(10 + i, 2048) for i in range(DEVICES)]
    return Trial({}, {}, (("forward", arrays, [sum(arrays)] * DEVICES),))


def zero1() -> Trial:
    params, x, g = model(most=1)
    state = {name: np.zeros_like(value) for name, value in params.items()}
    calls: list[Any] = []
    for _ in range(2):
        out, grads = single(params, x, g)
        state = {name: MOMENTUM * state[name] + grads[name] for name in params}
        params_after = {name: (params[name] - RATE * state[name]).astype(np.float32) for name in params}
        calls += [("forward", rows(x), rows(out)), ("backward", rows(g), [params_after] * DEVICES)]
        params = params_after
    return Trial({**SIZES, "rate": RATE, "momentum": MOMENTUM}, model(most=1)[0], tuple(calls))


def fsdp(with_dx: bool = True) -> Trial:
    params, x, g = model()
    out, grads = single(params, x, g)
    shards = zip(rows(grads[W0]), rows(grads[W1]), rows(grads["x"]))
    wanted = [{W0: a, W1: b, **({"x": c} if with_dx else {})} for a, b, c in shards]
    return Trial(SIZES, params, (("forward", rows(x), rows(out)), ("backward", rows(g), wanted)))


def fsdp_lean() -> Trial:
    return fsdp(with_dx=False)


def tensor_parallel() -> Trial:
    params, x, g = model()
    out, grads = single(params, x, g)
    wanted = [{W0: a, W1: b, "x": grads["x"]} for a, b in zip(columns(grads[W0]), rows(grads[W1]))]
    return Trial(SIZES, params, (("forward", [x] * DEVICES, [out] * DEVICES), ("backward", [g] * DEVICES, wanted)))


def sequence_parallel() -> Trial:
    params, x, g = model()
    out, grads = single(params, x, g)
    parts = zip(columns(grads[W0]), rows(grads[W1]), rows(grads["x"]))
    wanted = [{W0: a, W1: b, "x": c} for a, b, c in parts]
    return Trial(SIZES, params, (("forward", rows(x), rows(out)), ("backward", rows(g), wanted)))


STREAM = 12


def pipeline_inference() -> Trial:
    params = {f"layer_{i}/weights": drawn(20 + i, MODEL, MODEL, most=1) for i in range(DEVICES)}
    inputs = [drawn(30 + i, 2, MODEL, most=1) for i in range(STREAM)]
    outputs = []
    for x in inputs:
        for weight in params.values():
            x = np.maximum(x @ weight, 0)
        outputs.append(x)
    return Trial({"model_dim": MODEL}, params, stream=(inputs, outputs))


TRIALS: Mapping[str, Callable[[], Trial]] = {
    "DataParallel": data_parallel,
    "OneBucket": data_parallel,
    "RingAllReduce": ring_all_reduce,
    "ZeRO1": zero1,
    "FSDP": fsdp,
    "FSDPLean": fsdp_lean,
    "TensorParallel": tensor_parallel,
    "SequenceParallel": sequence_parallel,
    "PipelineInference": pipeline_inference,
}
