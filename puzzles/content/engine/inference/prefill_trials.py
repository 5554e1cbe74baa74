"""Trials of PrefillDecode: prompts through a layer of causal attention, which then generates from its own outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lib.engine.collectives import bytes_sent
from puzzles.catalog.engine.transformer import attention, normal
from puzzles.catalog.engine.trial import MethodCall, Trial
from puzzles.catalog.engine.two_layer_mlp import ROUNDING, numbers

NAMES = ("attention/query", "attention/key", "attention/value", "attention/output")
Weights = dict[str, Any]


def prefill_decode() -> Trial:
    """2 devices for prompts and 2 for generation."""
    return prefill_trial(16, 4, 2, 2, lengths=(12, 8, 10), tokens=8)


def prefill_decode_uneven() -> Trial:
    """4 devices for prompts and 2 for generation."""
    return prefill_trial(24, 4, 4, 2, lengths=(5, 9), tokens=4, seed=80)


def prefill_trial(
    dim: int, heads: int, prefill: int, decode: int, lengths: Sequence[int], tokens: int, seed: int = 60
) -> Trial:
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
