"""Trials of Rotate and Compose: updates that are rotated before they are compressed.

Their statements fix all random draws, so there is one right answer for every seed, and it is compared exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from puzzles.catalog.engine.trial import Trial

from .encodings import padded_vector, quantization_scale, random_signs, spiky_vector, walsh_hadamard
from .server_result import CLIENTS, DEVICES, Targets
from .sketched_trials import calls_with

RIGHT = "right"
Answers = Mapping[str, Any]
"""One client's update as the server rebuilds it: under RIGHT, and for known mistakes under the message for each."""

STILL_SIGNED = "the signs are not undone; after H, the server has to multiply by the same signs again"
STILL_ROTATED = "it is still rotated; the server has to apply H and then the signs"


def rotate(size: int = 4096, seed: int = 92, targets: Targets = None) -> Trial:
    updates = [
        spiky_vector(seed, size),
        padded_vector(size, 1, -1),
        padded_vector(size, 1),
        spiky_vector(seed + 1, size),
    ]
    return _trial({"size": size}, updates, _rotated, targets)


def _rotated(h: Any, seed: int) -> Answers:
    rng = np.random.default_rng(seed)
    signs, draws = random_signs(rng, h.size), rng.random(h.size)

    def bit(v: Any) -> Any:
        scale = quantization_scale(v, bits=1)
        return scale.values(draws < scale.fraction)

    sent, root = bit(walsh_hadamard(signs * h)), np.sqrt(h.size)
    right = signs * walsh_hadamard(sent)
    return {
        RIGHT: right,
        "it was quantized without rotation; rotate it first, and rotate back on the server": bit(h),
        STILL_SIGNED: walsh_hadamard(sent),
        STILL_ROTATED: sent,
        "H was applied without multiplying by the signs first": walsh_hadamard(bit(walsh_hadamard(h))),
        f"it is {root:g} times too large; H / sqrt(d) is its own inverse, so both sides divide by sqrt(d)": root
        * right,
        f"it is {h.size} times too large; H H is d, so both sides divide by sqrt(d)": h.size * right,
    }


def compose(size: int = 4096, share: int = 16, bits: int = 2, seed: int = 94, targets: Targets = None) -> Trial:
    updates = [spiky_vector(seed + i, size) for i in range(CLIENTS)]

    def answers(h: Any, seed: int) -> Answers:
        return _composed(h, seed, share, bits)

    return _trial({"size": size, "share": share, "bits": bits}, updates, answers, targets)


def _composed(h: Any, seed: int, share: int, bits: int) -> Answers:
    rng = np.random.default_rng(seed)
    signs, places = random_signs(rng, h.size), rng.choice(h.size, h.size // share, replace=False)
    scale = quantization_scale(walsh_hadamard(signs * h)[places], bits)
    sent = np.zeros(h.size)
    sent[places] = scale.values(rng.random(places.size) < scale.fraction)
    unscaled = signs * walsh_hadamard(sent)
    return {
        RIGHT: share * unscaled,
        f"it is {share} times too small; only one in {share} was sent, so scale up what arrives": unscaled,
        STILL_SIGNED: share * walsh_hadamard(sent),
        STILL_ROTATED: share * sent,
    }


def _trial(
    sizes: Mapping[str, int],
    updates: Sequence[Any],
    answers: Callable[[Any, int], Answers],
    targets: Targets,
) -> Trial:
    """A trial that compares the result of the server, device 0; the clients may return anything."""
    (call,), (seeds,) = calls_with(1, updates)
    rows = [answers(h, int(seed)) for h, seed in zip(updates, seeds)]
    made = {words: [np.stack([row[words] for row in rows])] for words in rows[0]}
    call = replace(call, wanted=made.pop(RIGHT), mistakes=made)
    return Trial(sizes, {}, (call,), devices=DEVICES, tolerance=1e-5, targets=targets, packing=True)
