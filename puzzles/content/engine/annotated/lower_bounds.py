"""The least figures of the annotation puzzles."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from puzzles.catalog.engine import lower_bounds
from puzzles.catalog.engine.lower_bounds import FigureBound, MakeBounds
from puzzles.catalog.engine.trial import Trial

SHARED = "the results depend on all weights, and a device holds a quarter of them"


def annotated_mlp(trial: Trial) -> dict[str, FigureBound]:
    x, w0, w1 = lower_bounds.whole(trial, "forward"), trial.params["w0"], trial.params["w1"]
    count = lower_bounds.products(x, w0) + lower_bounds.products(np.maximum(x @ w0, 0), w1)
    return {
        "sent": lower_bounds.something(SHARED, given=("weights",)),
        "flops": lower_bounds.flops(count, trial.devices),
        "weights": lower_bounds.weights(trial),
    }


def annotated_moe(trial: Trial) -> dict[str, FigureBound]:
    """Only the experts' first products: to dispatch is to choose rows, and the second ones follow a relu."""
    given = [given for (given,) in lower_bounds.arguments(trial, "forward")]
    rows = sum(int(part["dispatch"].sum()) for part in given)
    _, width, hidden = trial.params["wi"].shape
    return {
        "sent": lower_bounds.something(SHARED, given=("weights",)),
        "flops": lower_bounds.flops(rows * width * hidden, trial.devices),
        "weights": lower_bounds.weights(trial),
    }


LOWER_BOUNDS: Mapping[str, MakeBounds] = {"AnnotatedMLP": annotated_mlp, "AnnotatedMoE": annotated_moe}
