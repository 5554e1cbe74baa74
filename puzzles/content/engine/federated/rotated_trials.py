"""Trials of Rotate: updates that are rotated before they are compressed.

Its statement fixes all random draws, so there is one right answer for every seed, and it is compared exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np

from puzzles.catalog.engine.trial import Trial
from puzzles.catalog.engine.two_layer_mlp import fixed_rng

from .encodings import (
    QuantizationScale,
    padded_vector,
    quantization_scale,
    random_signs,
    spiky_vector,
    walsh_hadamard,
)
from .server_result import DEVICES, Targets
from .sketched_trials import calls_with, client_seeds

RIGHT = "right"
Answers = Mapping[str, Any]
"""One client's update as the server rebuilds it: under RIGHT, and for known mistakes under the message for each."""

MARGIN = 5e-6
"""Of each draw from the probability with which it is compared, so that no rounding decides."""


def rotate(size: int = 4096, seed: int = 92, targets: Targets = None) -> Trial:
    padded = padded_vector(size, 1, -1), padded_vector(size, 1)
    rng = np.random.default_rng(1)
    while not all(map(_is_clear, padded, (seeds := client_seeds(rng))[0, 1:3])):
        continue
    updates = [_clear_vector(seed, size, seeds[0, 0]), *padded, _clear_vector(seed + 1, size, seeds[0, 3])]
    rows = [_rotated(h, client_seed) for h, client_seed in zip(updates, seeds[0])]
    made = {words: [np.stack([row[words] for row in rows])] for words in rows[0]}
    (call,) = calls_with(seeds, updates)
    call = replace(call, wanted=made.pop(RIGHT), mistakes=made)
    return Trial({"size": size}, {}, (call,), devices=DEVICES, tolerance=1e-5, targets=targets, packing=True)


def _clear_vector(seed: int, size: int, client_seed: int) -> Any:
    """A spiky vector; the first of several if a draw is too close in it."""
    for more in count(step=100):
        h = spiky_vector(seed + more, size)
        if _is_clear(h, client_seed):
            return h
    raise AssertionError("count has no end")


def _is_clear(h: Any, client_seed: int) -> bool:
    """True if no draw is close to the probability with which it is compared."""
    signs, draws = _draws(client_seed, h.size)
    return bool(np.abs(draws - _scale(walsh_hadamard(signs * h)).fraction).min() > MARGIN)


def _draws(client_seed: int, size: int) -> tuple[Any, Any]:
    """As the statement says: signs, then a number for each bit."""
    rng = fixed_rng(client_seed)
    return random_signs(rng, size), rng.random(size)


def _scale(v: Any) -> QuantizationScale:
    return quantization_scale(v, bits=1)


def _rotated(h: Any, client_seed: int) -> Answers:
    signs, draws = _draws(client_seed, h.size)

    def bit(v: Any) -> Any:
        scale = _scale(v)
        return scale.values(draws < scale.fraction)

    sent, root = bit(walsh_hadamard(signs * h)), np.sqrt(h.size)
    right = signs * walsh_hadamard(sent)
    return {
        RIGHT: right,
        "it was quantized without rotation; rotate it first, and rotate back on the server": bit(h),
        "the signs are not undone; after H, the server has to multiply by the same signs again": walsh_hadamard(sent),
        "it is still rotated; the server has to apply H and then the signs": sent,
        "H was applied without multiplying by the signs first": walsh_hadamard(bit(walsh_hadamard(h))),
        f"it is {root:g} times too large; H / sqrt(d) is its own inverse, so both sides divide by sqrt(d)": root
        * right,
        f"it is {h.size} times too large; H H is d, so both sides divide by sqrt(d)": h.size * right,
    }
