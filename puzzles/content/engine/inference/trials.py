"""Trials of the inference puzzles: chains of layers, with limits on host and disk traffic."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from puzzles.catalog.engine.trial import MethodCall, Performed, Trial, WrongResultError
from puzzles.catalog.engine.two_layer_mlp import DEVICES, ROUNDING, numbers, split_rows

from .prefill_trials import prefill_decode, prefill_decode_uneven

LAYERS, DIM = 8, 16
HOST, DISK = 8, 64
"""Time to read a byte, in flops."""


def chain_calls(
    layers: int = LAYERS, dim: int = DIM, batch: int = 2, passes: int = 1, seed: int = 0
) -> tuple[dict[str, Any], tuple[MethodCall, ...]]:
    """Parameters, and for each pass a forward of new rows, `batch` per device: x = relu(x @ w) in every layer."""
    scale = np.float32((6 / dim) ** 0.5)  # which keeps the size of the activations
    params: dict[str, Any] = {f"layer_{i}/weights": numbers(seed + i, dim, dim) * scale for i in range(layers)}
    calls = []
    for number in range(passes):
        x = given = numbers(seed + 100 + number, DEVICES * batch, dim)
        for weight in params.values():
            x = np.maximum(x.astype(np.float64) @ weight, 0)
        calls.append(MethodCall("forward", split_rows(given), split_rows(x)))
    return params, tuple(calls)


def weights_are_metered(params: Mapping[str, Any]) -> Callable[[Performed], None]:
    """A check that every byte of the weights was metered: on a device after loading, or read from host or disk."""
    whole = sum(weight.nbytes for weight in params.values())

    def check(performed: Performed) -> None:
        loaded, ended = performed.readings[0], performed.readings[-1]
        seen = sum(m.live for m in loaded) + sum(m.host["read"] + m.disk["read"] for m in ended)
        if seen < whole:
            raise WrongResultError(
                f"the weights have {whole:,} B, but only {seen:,} B of them were kept in arrays or read from hosts and "
                "disks; the others are somewhere that no meter counts: put them on the host or the disk"
            )

    return check


def stream(layers: int, dim: int, batch: int, seed: int) -> Callable[[], Trial]:
    def make() -> Trial:
        params, calls = chain_calls(layers, dim, batch, seed=seed)
        layer, row = 4 * dim * dim, 4 * dim
        shard = layer // DEVICES
        targets = {
            "host_read": layers * shard,
            "disk_read": 0,
            "sent": layers * (DEVICES - 1) * shard,
            "collectives": layers,
            "weights": 0,
            "peak": layer + shard + 3 * batch * row,
        }
        return Trial(
            {"layers": layers, "model_dim": dim},
            params,
            calls,
            targets=targets,
            tolerance=ROUNDING,
            check=weights_are_metered(params),
        )

    return make


def prefetch(
    batch: int, layers: int = LAYERS, dim: int = DIM, byte_time: int = HOST, seed: int = 1
) -> Callable[[], Trial]:
    """Trials that are judged by time: f flops to fetch a shard, c for a layer's product."""

    def make() -> Trial:
        params, calls = chain_calls(layers, dim, batch, seed=seed)
        layer, row = 4 * dim * dim, 4 * dim
        f, c = layer // DEVICES * byte_time, 2 * batch * dim * dim
        targets = {
            "elapsed": f + (layers - 1) * max(f, c) + c,
            "sent": layers * (DEVICES - 1) * layer // DEVICES,
            "collectives": layers,
            "weights": 0,
            "peak": 2 * layer + 3 * batch * row,
        }
        options = {"byte_time": {"host": byte_time, "disk": byte_time * DISK // HOST}}
        return Trial(
            {"layers": layers, "model_dim": dim},
            params,
            calls,
            targets=targets,
            tolerance=ROUNDING,
            options=options,
            check=weights_are_metered(params),
        )

    return make


def host_cache(fits: int, layers: int = LAYERS, dim: int = DIM, passes: int = 3, seed: int = 2) -> Callable[[], Trial]:
    """Trials on a host with room for the shards of `fits` layers."""

    def make() -> Trial:
        params, calls = chain_calls(layers, dim, 2, passes, seed)
        layer, row = 4 * dim * dim, 4 * dim
        shard = layer // DEVICES
        targets = {
            "disk_read": (layers + (passes - 1) * (layers - fits)) * shard,
            "host_peak": fits * shard,
            "host_loaded": 0,
            "sent": passes * layers * (DEVICES - 1) * shard,
            "collectives": passes * layers,
            "weights": 0,
            "peak": layer + shard + 6 * row,
        }
        arguments = {"layers": layers, "model_dim": dim, "host_bytes": fits * shard}
        return Trial(arguments, params, calls, targets=targets, tolerance=ROUNDING, check=weights_are_metered(params))

    return make


TRIALS: Mapping[str, tuple[Callable[[], Trial], ...]] = {
    "Stream": (stream(LAYERS, DIM, 2, seed=0), stream(3, 32, 4, seed=7)),
    "Prefetch": (
        *(prefetch(batch) for batch in (4, 1, 2, 8)),
        prefetch(batch=3, layers=5, dim=32, byte_time=3, seed=8),
    ),
    "PrefillDecode": (prefill_decode, prefill_decode_uneven),
    "HostCache": (host_cache(fits=4), host_cache(fits=1, layers=5, passes=4, seed=9), host_cache(fits=5, layers=6)),
}
