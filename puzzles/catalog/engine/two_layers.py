"""The model of most engine puzzles on one device, relu(x @ w0) @ w1, in small whole numbers: sums are exact.

Batch 8, model_dim 16, hidden_dim 64, float32, on 4 devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .trial import Call, Trial

DEVICES, BATCH, MODEL, HIDDEN = 4, 8, 16, 64
W0, W1 = "layer_0/weights", "layer_1/weights"


def drawn(seed: int, *shape: int, most: int = 2) -> Any:
    return np.random.default_rng(seed).integers(-most, most + 1, shape).astype(np.float32)


def rows(array: Any, devices: int = DEVICES) -> list[Any]:
    """Each device's part of the rows."""
    return list(np.split(array, devices))


class TwoLayers(NamedTuple):
    """Sizes of the model, its batch and its devices; these divide batch, model_dim and hidden_dim."""

    devices: int = DEVICES
    batch: int = BATCH
    model_dim: int = MODEL
    hidden_dim: int = HIDDEN

    @property
    def sizes(self) -> dict[str, int]:
        """What a class is made with."""
        return {"model_dim": self.model_dim, "hidden_dim": self.hidden_dim}

    def drawn(self, most: int = 2) -> tuple[dict[str, Any], Any, Any]:
        """Parameters, the input of the whole batch, the gradient of the output."""
        dim, hidden = self.model_dim, self.hidden_dim
        params = {W0: drawn(1, dim, hidden, most=most), W1: drawn(2, hidden, dim, most=most)}
        return params, drawn(3, self.batch, dim, most=most), drawn(4, self.batch, dim, most=most)

    def trial(self, params: Mapping[str, Any], calls: Sequence[Call], **arguments: Any) -> Trial:
        """A class of these sizes. Where they are not the shown ones, players are not told of it, and only what is right
        counts."""
        shown = self == SHOWN
        options: dict[str, Any] = {"targets": None if shown else {}, "hidden": not shown}
        return Trial({**self.sizes, **arguments}, params, calls, devices=self.devices, **options)

    def rows(self, array: Any) -> list[Any]:
        return rows(array, self.devices)

    def columns(self, array: Any) -> list[Any]:
        """Each device's part of the columns."""
        return list(np.split(array, self.devices, axis=1))


SHOWN = TwoLayers()
OTHER = TwoLayers(devices=2, batch=6, model_dim=8, hidden_dim=12)
"""Tells a class that is made for the shown sizes only."""


def single(params: Mapping[str, Any], x: Any, g: Any) -> tuple[Any, dict[str, Any]]:
    """Output and gradients on one device; 'x' is the gradient of the input."""
    z = x @ params[W0]
    h = np.maximum(z, 0)
    dz = (g @ params[W1].T) * (z > 0)
    return h @ params[W1], {W0: x.T @ dz, W1: h.T @ g, "x": dz @ params[W0].T}
