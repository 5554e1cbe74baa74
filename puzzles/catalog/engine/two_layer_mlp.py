"""The model of most engine puzzles, relu(x @ w0) @ w1, computed on one device to get the expected results.

Its float32 numbers use all 24 bits, so an array that is sent in float16 or int8 gives another result. The expected
results are computed in float64. The shown sizes are batch 8, model_dim 16, hidden_dim 64, on 4 devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .trial import MethodCall, Trial

DEVICES, BATCH, MODEL, HIDDEN = 4, 8, 16, 64
W0, W1 = "layer_0/weights", "layer_1/weights"
B0, B1 = "layer_0/bias", "layer_1/bias"


fixed_rng = np.random.default_rng
"""Numpy's function, for draws that every device is given and may branch on: the second run of a class replaces
`np.random.default_rng`, so that other draws change, but not this name."""


def integers(seed: int, *shape: int, most: int = 2, is_fixed: bool = False) -> Any:
    """Integers from -most to most, as float32."""
    rng = (fixed_rng if is_fixed else np.random.default_rng)(seed)
    return rng.integers(-most, most + 1, shape).astype(np.float32)


ROUNDING = 1e-5
"""Tolerance relative to the largest number. Sums have up to 64 terms, each rounded by 2^-24 of its size: together 4e-6.
One number sent in float16 is 2^-11 off, 5e-4."""


def numbers(seed: int, *shape: int) -> Any:
    """Random float32 between -1 and 1, in all 24 bits."""
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def exact(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Tensors in float64, for expected results."""
    return {name: np.asarray(value, np.float64) for name, value in tensors.items()}


def split_rows(array: Any, devices: int = DEVICES) -> list[Any]:
    """Each device's part of the rows."""
    return list(np.split(array, devices))


class TwoLayerMLP(NamedTuple):
    """Sizes of the model, its batch and its devices; the devices divide batch, model_dim and hidden_dim."""

    devices: int = DEVICES
    batch: int = BATCH
    model_dim: int = MODEL
    hidden_dim: int = HIDDEN

    @property
    def sizes(self) -> dict[str, int]:
        """Arguments of the class's __init__."""
        return {"model_dim": self.model_dim, "hidden_dim": self.hidden_dim}

    def tensors(self) -> tuple[dict[str, Any], Any, Any]:
        """Parameters, the input of the whole batch, and the gradient of the output."""
        dim, hidden = self.model_dim, self.hidden_dim
        params = {W0: numbers(1, dim, hidden), W1: numbers(2, hidden, dim)}
        return params, numbers(3, self.batch, dim), numbers(4, self.batch, dim)

    def trial(self, params: Mapping[str, Any], calls: Sequence[MethodCall], **arguments: Any) -> Trial:
        """A trial at these sizes. At sizes other than the shown ones it is hidden and has no targets."""
        shown = self == SHOWN
        options: dict[str, Any] = {"targets": None if shown else {}, "hidden": not shown, "tolerance": ROUNDING}
        return Trial({**self.sizes, **arguments}, params, calls, devices=self.devices, **options)

    def split_rows(self, array: Any) -> list[Any]:
        return split_rows(array, self.devices)

    def calls_by_rows(self, x: Any, out: Any, g: Any, wanted: Sequence[Any]) -> tuple[MethodCall, MethodCall]:
        """Forward and backward with a part of the batch on each device; `wanted`: what backward returns on each."""
        return (
            MethodCall("forward", self.split_rows(x), self.split_rows(out)),
            MethodCall("backward", self.split_rows(g), wanted),
        )

    def split_columns(self, array: Any) -> list[Any]:
        """Each device's part of the columns."""
        return list(np.split(array, self.devices, axis=1))


SHOWN = TwoLayerMLP()
OTHER = TwoLayerMLP(devices=2, batch=6, model_dim=8, hidden_dim=12)
"""Detects a class that works only for the shown sizes."""


def mlp_forward_backward(params: Mapping[str, Any], x: Any, g: Any) -> tuple[Any, dict[str, Any]]:
    """Output and gradients on one device: of every parameter, and of the input under 'x'. Biases are optional."""
    params, x, g = exact(params), np.asarray(x, np.float64), np.asarray(g, np.float64)
    z = x @ params[W0] + params.get(B0, 0)
    h = np.maximum(z, 0)
    dz = (g @ params[W1].T) * (z > 0)
    grads = {W0: x.T @ dz, B0: dz.sum(axis=0), W1: h.T @ g, B1: g.sum(axis=0)}
    return h @ params[W1] + params.get(B1, 0), {**{name: grads[name] for name in params}, "x": dz @ params[W0].T}
