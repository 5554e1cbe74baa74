"""What the puzzles of this chapter are tried with: small whole numbers, and what a single device makes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ..trial import Trial
from ..two_layers import DEVICES, MODEL, drawn
from .split_trials import gpipe_remat, gpipe_remat_others, layer_split, layer_split_again

STREAM = 12


def pipeline_inference() -> Trial:
    params = {f"layer_{i}/weights": drawn(20 + i, MODEL, MODEL, most=1) for i in range(DEVICES)}
    inputs = [drawn(30 + i, 2, MODEL, most=1) for i in range(STREAM)]
    outputs = []
    for x in inputs:
        for weight in params.values():
            x = np.maximum(x @ weight, 0)
        outputs.append(x)
    return Trial({"model_dim": MODEL}, params, stream=(inputs, outputs))


TRIALS: Mapping[str, tuple[Callable[[], Trial], ...]] = {
    "LayerSplit": (layer_split, layer_split_again),
    "PipelineInference": (pipeline_inference,),
    "GPipeRemat": (gpipe_remat, gpipe_remat_others),
}
