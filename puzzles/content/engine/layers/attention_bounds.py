"""The least figures of ring attention, with and without a causal mask."""

from __future__ import annotations

from typing import Any

import numpy as np

from puzzles.catalog.engine import lower_bounds
from puzzles.catalog.engine.lower_bounds import BITS, FigureBound
from puzzles.catalog.engine.transformer import softmax
from puzzles.catalog.engine.trial import Trial

VISIBLE = 1e-4
"""Weight of a key in a query's result above which leaving it out shows."""


def ring_attention(trial: Trial) -> dict[str, FigureBound]:
    causal = trial.arguments["causal"]
    given = [given for (given,) in lower_bounds.arguments(trial, "forward")]
    q = np.concatenate([part["q"] for part in given]).astype(np.float64)
    k, v = (np.concatenate([part["kv"][i] for part in given]) for i in (0, 1))
    places = order_of(len(q), trial.devices) if causal else np.arange(len(q))
    mask = places[:, None] >= places if causal else True
    visible = int((softmax(np.where(mask, q @ k.T / np.sqrt(q.shape[1]), -np.inf)) > VISIBLE).sum())
    count = visible * (q.shape[1] + v.shape[1])
    row = v.shape[1] * BITS // 8
    return {
        **lower_bounds.calls(),
        "sent": FigureBound(row, f"at least one value, {row} B, shows in the result of another device"),
        "flops": lower_bounds.flops(count, trial.devices)._replace(
            reason=f"{visible:,} pairs of a query and a key show in the results; each takes its score and its value"
        ),
        "peak": lower_bounds.peak(trial),
    }


def order_of(tokens: int, devices: int) -> Any:
    """The places of the devices' tokens: chunk i and chunk 2n - 1 - i on device i."""
    chunks = np.split(np.arange(tokens), 2 * devices)
    return np.concatenate([chunks[part] for i in range(devices) for part in (i, 2 * devices - 1 - i)])
