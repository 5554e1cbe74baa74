"""The least figures of the annotation puzzles."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from puzzles.catalog.engine import least
from puzzles.catalog.engine.least import Least, MakeLeasts
from puzzles.catalog.engine.trial import Trial

SHARED = "the results depend on all weights, and a device holds a quarter of them"


def annotated_mlp(trial: Trial) -> dict[str, Least]:
    x, w0, w1 = least.whole(trial, "forward"), trial.params["w0"], trial.params["w1"]
    count = least.products(x, w0) + least.products(np.maximum(x @ w0, 0), w1)
    return {
        "sent": least.something(SHARED, given=("weights",)),
        "flops": least.flops(count, trial.devices),
        "weights": least.weights(trial),
    }


def annotated_moe(trial: Trial) -> dict[str, Least]:
    """Only the experts' first products: to dispatch is to choose rows, and the second ones follow a relu."""
    given = [given for (given,) in least.arguments(trial, "forward")]
    rows = sum(int(part["dispatch"].sum()) for part in given)
    _, width, hidden = trial.params["wi"].shape
    return {
        "sent": least.something(SHARED, given=("weights",)),
        "flops": least.flops(rows * width * hidden, trial.devices),
        "weights": least.weights(trial),
    }


LEAST: Mapping[str, MakeLeasts] = {"AnnotatedMLP": annotated_mlp, "AnnotatedMoE": annotated_moe}
