"""The model of most engine puzzles on one device, relu(x @ w0) @ w1, in small whole numbers: sums are exact.

Batch 8, model_dim 16, hidden_dim 64, float32, on 4 devices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

DEVICES, BATCH, MODEL, HIDDEN = 4, 8, 16, 64
W0, W1 = "layer_0/weights", "layer_1/weights"
SIZES = {"model_dim": MODEL, "hidden_dim": HIDDEN}


def drawn(seed: int, *shape: int, most: int = 2) -> Any:
    return np.random.default_rng(seed).integers(-most, most + 1, shape).astype(np.float32)


def model(most: int = 2) -> tuple[dict[str, Any], Any, Any]:
    """Parameters, the input of the whole batch, the gradient of the output."""
    params = {W0: drawn(1, MODEL, HIDDEN, most=most), W1: drawn(2, HIDDEN, MODEL, most=most)}
    return params, drawn(3, BATCH, MODEL, most=most), drawn(4, BATCH, MODEL, most=most)


def single(params: Mapping[str, Any], x: Any, g: Any) -> tuple[Any, dict[str, Any]]:
    """Output and gradients on one device; 'x' is the gradient of the input."""
    z = x @ params[W0]
    h = np.maximum(z, 0)
    dz = (g @ params[W1].T) * (z > 0)
    return h @ params[W1], {W0: x.T @ dz, W1: h.T @ g, "x": dz @ params[W0].T}


def rows(array: Any) -> list[Any]:
    return list(np.split(array, DEVICES))


def columns(array: Any) -> list[Any]:
    return list(np.split(array, DEVICES, axis=1))
