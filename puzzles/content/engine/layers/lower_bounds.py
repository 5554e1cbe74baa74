"""The least figures of the pipeline puzzles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from puzzles.catalog.engine import lower_bounds
from puzzles.catalog.engine.lower_bounds import BITS, FigureBound, MakeBounds
from puzzles.catalog.engine.transformer import softmax
from puzzles.catalog.engine.trial import Trial

# --- The least figures of ring attention, with and without a causal mask.


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


# --- The trials of the chapter


def chain(trial: Trial) -> dict[str, FigureBound]:
    """Training of a chain of layers, whose ends are on different devices."""
    count, rows = 0, 0
    backward = [call for call in trial.calls if call.method == "backward"]
    forward = [call for call in trial.calls if call.method == "forward"]
    for first, last in zip(forward, backward):
        with_dx = "x" in (last.wanted or ({},))[0]
        count += lower_bounds.chain_products(trial.params, first.arguments[0], last.arguments[-1], with_dx=with_dx)
        rows += int(np.any((first.wanted or (None,))[-1], axis=1).sum())
    work = lower_bounds.flops(count, trial.devices)
    each = rows * BITS // 8
    return {
        **lower_bounds.calls(),
        "sent": FigureBound(each, f"{rows} rows of the output depend on rows that only the first device has"),
        "flops": work,
        "weights": lower_bounds.weights(trial),
        "stored": FigureBound(0, "a device that is sent its inputs again need not keep them"),
        "clock": work._replace(reason=f"a device's clock is at least its flops: {work.reason}"),
    }


def pipeline_inference(trial: Trial) -> dict[str, FigureBound]:
    assert trial.stream is not None
    inputs = np.concatenate(trial.stream[0])
    count = lower_bounds.chain_products(trial.params, inputs, relu_first=False)
    work = lower_bounds.flops(count, trial.devices)
    clock = (trial.targets or {}).get("clock", 2 * count)
    alone = "a device that computes all layers alone misses the target for the clock, so something is sent"
    return {
        **lower_bounds.calls(),
        "sent": lower_bounds.something(alone, given=("clock",))
        if 2 * count > clock
        else FigureBound(0, "one device may do it all"),
        "weights": lower_bounds.weights(trial),
        "clock": work._replace(reason=f"a device's clock is at least its flops: {work.reason}"),
    }


LOWER_BOUNDS: Mapping[str, MakeBounds] = {
    "LayerSplit": chain,
    "PipelineInference": pipeline_inference,
    "GPipeRemat": chain,
    "RingAttention": ring_attention,
}
