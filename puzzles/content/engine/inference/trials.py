"""Trials of the inference puzzles: chains of layers and generation, with limits on traffic and on time.

Targets follow from the sizes by the puzzle's arithmetic. Weights have to be somewhere that a meter counts, which a
check of its own requires: a class could keep them in Python's numbers otherwise. The texts of the puzzles, and the
targets, stand in their TOML files; here is what a class is run with, and which results are right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from lib.engine.collectives import bytes_sent
from puzzles.catalog.engine import lower_bounds
from puzzles.catalog.engine.lower_bounds import FigureBound, MakeBounds
from puzzles.catalog.engine.models import DEVICES, ROUNDING, attention, normal, numbers, split_rows
from puzzles.catalog.engine.trial import MethodCall, Performed, Trial, WrongResultError
from puzzles.content.engine.layers.trials import chain_output, random_layers

# --- Trials of PrefillDecode: prompts through a layer of causal attention, which then generates from its own outputs.


NAMES = ("attention/query", "attention/key", "attention/value", "attention/output")
Weights = dict[str, Any]


def prefill_decode(
    dim: int = 16, heads: int = 4, prefill: int = 2, decode: int = 2, lengths: Sequence[int] = (12, 8, 10),
    tokens: int = 8, seed: int = 60,
) -> Trial:  # fmt: skip
    """`prefill` devices for prompts, and `decode` devices for generation."""
    weights = {name: normal(seed + i, dim, dim) for i, name in enumerate(NAMES)}
    prompts = [numbers(seed + 10 + i, length, dim) for i, length in enumerate(lengths)]

    def results(**mistake: bool) -> list[Any]:
        generated = [continued(weights, prompt, heads, tokens, **mistake) for prompt in prompts]
        outputs = [layer(weights, prompt, heads, **mistake) for prompt in prompts]
        return [np.concatenate(outputs)] * prefill + [np.stack(generated)] * decode

    mistakes = {
        "does a token of a prompt see later ones?": results(causal=False),
        "are the keys and values of a generated token missing in the cache?": results(appended=False),
    }
    calls = (MethodCall("forward", [prompts] * prefill + [len(prompts)] * decode, results(), mistakes),)
    return Trial(
        {"model_dim": dim, "heads": heads, "prefill": prefill, "tokens": tokens},
        weights,
        calls,
        devices=prefill + decode,
        tolerance=ROUNDING,
        targets=prefill_targets(dim, heads, prefill, decode, lengths, tokens),
    )


def layer(weights: Weights, x: Any, heads: int, causal: bool = True, appended: bool = True, prompt: int = 0) -> Any:
    """The layer's outputs for all tokens, in float64, without a cache. Deliberate mistakes: tokens of a prompt that are
    not `causal`; generated tokens, those behind the `prompt`, that only see themselves and the prompt."""
    n, place = len(x), np.arange(len(x))
    x = x.astype(np.float64)
    q, k, v = ((x @ weights[name]).reshape(n, heads, -1).swapaxes(0, 1) for name in NAMES[:3])
    mask = place[:, None] >= place
    mask |= (place < (prompt or n)) & (place < (prompt or n))[:, None] & (not causal)
    if prompt and not appended:
        mask &= (place < prompt) | (place == place[:, None])
    return x + attention(q, k, v, mask).swapaxes(0, 1).reshape(n, -1) @ weights["attention/output"]


def continued(weights: Weights, prompt: Any, heads: int, tokens: int, **mistake: bool) -> Any:
    """The generated tokens: each is the output for the token before it."""
    x = prompt.astype(np.float64)
    for _ in range(tokens):
        x = np.concatenate([x, layer(weights, x, heads, prompt=len(prompt), **mistake)[-1:]])
    return x[len(prompt) :]


def prefill_targets(
    dim: int, heads: int, prefill: int, decode: int, lengths: Sequence[int], tokens: int
) -> dict[str, int]:
    """Limits from the puzzle's arithmetic."""
    steps, cached, row = tokens - 1, 2 * dim // prefill, 4 * dim
    filled = sum(bytes_sent("all_reduce", length * row, prefill) + 4 * (length * cached + dim) for length in lengths)
    generated = len(lengths) * steps * bytes_sent("all_reduce", row, decode)
    ready = done = 0
    for length in lengths:
        ready += layer_flops(dim, heads, prefill, length, length)
        done = max(ready, done) + sum(layer_flops(dim, heads, decode, 1, length + i + 1) for i in range(steps))
    return {
        "sent": max(filled, generated),
        "messages": len(lengths),
        "collectives": len(lengths) * max(steps, 1),
        "elapsed": done,
        "weights": 4 * row * dim // min(prefill, decode),
    }


def layer_flops(dim: int, heads: int, devices: int, new: int, seen: int) -> int:
    """On one of the devices: four products with its parts of the weights, two of attention, and the softmax."""
    width = dim // devices
    return 8 * new * dim * width + 4 * new * seen * width + 2 * heads // devices * new * seen


# --- The trials of the chapter


LAYERS, DIM = 8, 16
HOST, DISK = 8, 64
"""Time to read a byte, in flops."""


def chain_calls(
    layers: int = LAYERS, dim: int = DIM, batch: int = 2, passes: int = 1, seed: int = 0
) -> tuple[dict[str, Any], tuple[MethodCall, ...]]:
    """Parameters, and for each pass a forward of new rows, `batch` per device: x = relu(x @ w) in every layer."""
    params = random_layers(seed, dim, layers)
    given = [numbers(seed + 100 + number, DEVICES * batch, dim) for number in range(passes)]
    return params, tuple(MethodCall("forward", split_rows(x), split_rows(chain_output(params, x))) for x in given)


def weights_are_metered(params: Mapping[str, Any]) -> Callable[[Performed], None]:
    """A check that every byte of the weights was metered: on a device after loading, or read from host or disk."""
    whole = sum(weight.nbytes for weight in params.values())

    def check(performed: Performed) -> None:
        loaded, ended = performed.readings[0], performed.readings[-1]
        seen = sum(m.live for m in loaded) + sum(m.host["read"] + m.disk["read"] for m in ended)
        if seen < whole:
            raise WrongResultError(
                f"the weights have {whole:,} B, but only {seen:,} B of them were kept in arrays or read from hosts and "
                "disks; the others are somewhere that no meter counts: put them on the host or the disk",
                "load_checkpoint",
            )

    return check


def chain_trial(
    dim: int,
    params: Mapping[str, Any],
    calls: Sequence[MethodCall],
    targets: Mapping[str, int],
    options: Mapping[str, Any] | None = None,
    **arguments: int,
) -> Trial:
    """A trial of a chain whose weights are metered, with further arguments of the class and options of the launch."""
    sizes = {"layers": len(params), "model_dim": dim, **arguments}
    return Trial(
        sizes,
        params,
        calls,
        targets=targets,
        tolerance=ROUNDING,
        options=options or {},
        check=weights_are_metered(params),
    )


def stream(layers: int = LAYERS, dim: int = DIM, batch: int = 2, seed: int = 0) -> Trial:
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
    return chain_trial(dim, params, calls, targets)


def prefetch(batch: int, layers: int = LAYERS, dim: int = DIM, byte_time: int = HOST, seed: int = 1) -> Trial:
    """Trials that are judged by time: f flops to fetch a shard, c for a layer's product."""
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
    return chain_trial(dim, params, calls, targets, options)


def host_cache(fits: int = 4, layers: int = LAYERS, passes: int = 3, seed: int = 2) -> Trial:
    """Trials on a host with room for the shards of `fits` layers."""
    params, calls = chain_calls(layers, DIM, 2, passes, seed)
    layer, row = 4 * DIM * DIM, 4 * DIM
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
    return chain_trial(DIM, params, calls, targets, host_bytes=fits * shard)


TRIALS: Mapping[str, tuple[Callable[[], Trial], ...]] = {
    "Stream": (stream, partial(stream, 3, 32, 4, seed=7)),
    "Prefetch": (
        *(partial(prefetch, batch) for batch in (4, 1, 2, 8)),
        partial(prefetch, 3, layers=5, dim=32, byte_time=3, seed=8),
    ),
    "PrefillDecode": (prefill_decode, partial(prefill_decode, 24, 4, 4, 2, lengths=(5, 9), tokens=4, seed=80)),
    "HostCache": (host_cache, partial(host_cache, 1, layers=5, passes=4, seed=9), partial(host_cache, 5, layers=6)),
}


# --- What no class can do with less ---


def forward_passes(trial: Trial) -> dict[str, FigureBound]:
    count = sum(
        lower_bounds.chain_products(trial.params, np.concatenate(call.arguments), relu_first=False)
        for call in trial.calls
    )
    work = lower_bounds.flops(count, trial.devices)
    elsewhere = "weights may be kept on devices, hosts or disks"
    return {
        "sent": _sent(trial),
        "elapsed": work._replace(reason=f"the time is at least a device's flops: {work.reason}"),
        **{
            name: FigureBound(0, elsewhere)
            for name in ("weights", "host_read", "disk_read", "host_peak", "host_loaded")
        },
    }


def _sent(trial: Trial) -> FigureBound:
    """Something, if a device that reads the information of all weights itself reads more than a target allows, or takes
    longer."""
    targets, seconds = trial.targets or {}, trial.options.get("byte_time", {})
    read = int(lower_bounds.information(trial.params))
    limits = [name for name in ("host_read", "disk_read") if name in targets]
    if limits and read > sum(targets[name] for name in limits):
        given = tuple(limits)
    elif read * min(seconds.values(), default=0) > targets.get("elapsed", read):
        given = ("elapsed",)
    else:
        return FigureBound(0, "a device may read all weights itself")
    return lower_bounds.something(
        "a device that reads all weights itself misses another target, so something is sent",
        ("weights", "peak", *given),
    )


def prefill_decode_bounds(trial: Trial) -> dict[str, FigureBound]:
    """Every token goes through the four weights once, except the last that is generated."""
    prompts = trial.calls[0].arguments[0]
    tokens = sum(map(len, prompts)) + len(prompts) * (trial.arguments["tokens"] - 1)
    work = lower_bounds.flops(4 * tokens * trial.arguments["model_dim"] ** 2, trial.devices)
    return {
        "sent": lower_bounds.something("the devices that generate are given no prompts"),
        "elapsed": work._replace(reason=f"the time is at least a device's flops: {work.reason}"),
    }


LOWER_BOUNDS: Mapping[str, MakeBounds] = {
    "Stream": forward_passes,
    "Prefetch": forward_passes,
    "HostCache": forward_passes,
    "PrefillDecode": prefill_decode_bounds,
}
