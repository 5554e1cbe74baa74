"""Trials of the data parallel puzzles, and the results of a single device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

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
    mlp_forward_backward,
    numbers,
)

from .server_trials import parameter_server, parameter_server_small


def data_parallel(at: TwoLayerMLP = SHOWN) -> Trial:
    params, x, g = at.tensors()
    out, grads = mlp_forward_backward(params, x, g)
    whole = {W0: grads[W0], W1: grads[W1]}
    return at.trial(params, at.calls_by_rows(x, out, g, [whole] * at.devices))


def ring_all_reduce(devices: int = DEVICES, size: int = 2048) -> Trial:
    arrays = [numbers(10 + i, size) for i in range(devices)]
    calls = (MethodCall("forward", arrays, [np.sum(arrays, axis=0, dtype=np.float64)] * devices),)
    shown = devices == DEVICES
    return Trial(calls=calls, devices=devices, tolerance=ROUNDING, targets=None if shown else {}, hidden=not shown)


TRIALS: Mapping[str, tuple[Callable[[], Trial], ...]] = {
    "DataParallel": (data_parallel, partial(data_parallel, OTHER)),
    "OneBucket": (data_parallel, partial(data_parallel, OTHER)),
    "RingAllReduce": (ring_all_reduce, partial(ring_all_reduce, 3, 96)),
    "ParameterServer": (parameter_server, parameter_server_small),
}
