"""Trials of the pipeline puzzles, and the results of a single device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from lib.engine.call import WORD
from puzzles.catalog.engine.trial import Trial
from puzzles.catalog.engine.two_layer_mlp import DEVICES, MODEL, ROUNDING, numbers

from .attention_trials import RING_TRIALS
from .split_trials import gpipe_remat, gpipe_remat_others, layer_split, layer_split_again, random_layers


def pipeline_inference(devices: int = DEVICES, model_dim: int = MODEL, length: int = 12) -> Trial:
    params = random_layers(20, model_dim, devices)
    inputs = [numbers(30 + i, 2, model_dim) for i in range(length)]
    outputs = []
    for x in inputs:
        for weight in params.values():
            x = np.maximum(x.astype(np.float64) @ weight, 0)
        outputs.append(x)
    product = 2 * 2 * model_dim * model_dim
    limits = {"messages": length, "collectives": 0, "clock": (length + devices - 1) * product}
    sent = {"sent": length * (2 * model_dim * 4 + WORD), "weights": model_dim * model_dim * 4}
    return Trial(
        {"model_dim": model_dim},
        params,
        stream=(inputs, outputs),
        devices=devices,
        tolerance=ROUNDING,
        targets=sent | limits,
        hidden=devices != DEVICES,
    )


TRIALS: Mapping[str, tuple[Callable[[], Trial], ...]] = {
    "LayerSplit": (layer_split, layer_split_again),
    "PipelineInference": (pipeline_inference, partial(pipeline_inference, 3, 8, 5)),
    "GPipeRemat": (gpipe_remat, gpipe_remat_others),
    "RingAttention": RING_TRIALS,
}
