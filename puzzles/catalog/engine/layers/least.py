"""The least figures of the pipeline puzzles."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from puzzles.catalog.engine import least
from puzzles.catalog.engine.least import BITS, Least, MakeLeasts
from puzzles.catalog.engine.trial import Trial


def chain(trial: Trial) -> dict[str, Least]:
    """Training of a chain of layers, whose ends are on different devices."""
    count, rows = 0, 0
    backward = [call for call in trial.calls if call.method == "backward"]
    forward = [call for call in trial.calls if call.method == "forward"]
    for first, last in zip(forward, backward):
        with_dx = "x" in (last.wanted or ({},))[0]
        count += least.chain_products(trial.params, first.arguments[0], last.arguments[-1], with_dx=with_dx)
        rows += int(np.any((first.wanted or (None,))[-1], axis=1).sum())
    work = least.flops(count, trial.devices)
    each = rows * BITS // 8
    return {
        **least.calls(),
        "sent": Least(each, f"{rows} rows of the output depend on rows that only the first device has"),
        "flops": work,
        "weights": least.weights(trial),
        "stored": Least(0, "a device that is sent its inputs again need not keep them"),
        "clock": work._replace(reason=f"a device's clock is at least its flops: {work.reason}"),
    }


def pipeline_inference(trial: Trial) -> dict[str, Least]:
    assert trial.stream is not None
    inputs = np.concatenate(trial.stream[0])
    count = least.chain_products(trial.params, inputs, relu_first=False)
    work = least.flops(count, trial.devices)
    clock = (trial.targets or {}).get("clock", 2 * count)
    alone = "a device that computes all layers alone misses the target for the clock, so something is sent"
    return {
        **least.calls(),
        "sent": least.something(alone, given=("clock",)) if 2 * count > clock else Least(0, "one device may do it all"),
        "weights": least.weights(trial),
        "clock": work._replace(reason=f"a device's clock is at least its flops: {work.reason}"),
    }


LEAST: Mapping[str, MakeLeasts] = {
    "LayerSplit": chain,
    "PipelineInference": pipeline_inference,
    "GPipeRemat": chain,
}
