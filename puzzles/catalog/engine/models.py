"""The models of the engine puzzles, computed on one device in float64 to get the expected results.

Most puzzles have relu(x @ w0) @ w1; puzzles that split a transformer layer have multi-head attention and an MLP, each
with its residual connection. There is no dropout, and an RMSNorm only where the parameters have gains. The float32
numbers that classes are given use all 24 bits, so an array that is sent in float16 or int8 gives another result. The
shown sizes are batch 8, model_dim 16, hidden_dim 64, on 4 devices; other sizes detect a class that works only for
those. Rejected: expected results from the references, which would share their mistakes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .trial import MethodCall, Trial

# --- Two layers ---


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

    def tensors(self, seed: int = 1) -> tuple[dict[str, Any], Any, Any]:
        """Parameters, the input of the whole batch, and the gradient of the output."""
        dim, hidden = self.model_dim, self.hidden_dim
        params = {W0: numbers(seed, dim, hidden), W1: numbers(seed + 1, hidden, dim)}
        return params, numbers(seed + 2, self.batch, dim), numbers(seed + 3, self.batch, dim)

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

    def trained_by_rows(self, cuts: Mapping[str, Callable[[Any], Sequence[Any]]]) -> Trial:
        """Forward and backward with a part of the batch on each device. By name of a gradient that backward returns:
        what cuts it into the devices' parts."""
        params, x, g = self.tensors()
        out, grads = mlp_forward_backward(params, x, g)
        parts = zip(*(cut(grads[name]) for name, cut in cuts.items()))
        return self.trial(params, self.calls_by_rows(x, out, g, [dict(zip(cuts, part)) for part in parts]))

    def on_each(self, array: Any) -> list[Any]:
        """The whole array for each device."""
        return [array] * self.devices

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


# --- A transformer layer ---


COLUMNS = ("attention/query", "attention/key", "attention/value", "mlp/up")
"""Weights that read the residual stream: (model, model), and 'mlp/up' (model, hidden). Split by columns."""

ROWS = ("attention/output", "mlp/down")
"""Weights that write to it: (model, model) and (hidden, model). Split by rows."""


GAINS = ("norm_0/gain", "norm_1/gain")
"""Of the norms before attention and before the MLP: (model,) each."""

EPSILON = 1e-6
"""Added to the mean square in a norm."""


def normal(seed: int, *shape: int) -> Any:
    """Normal numbers of variance 1/shape[0], so that a product with them keeps its variance."""
    return (np.random.default_rng(seed).normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)


def layer_parameters(seed: int, model: int, hidden: int) -> dict[str, Any]:
    """Random parameters of a layer."""
    ends = {"mlp/up": (model, hidden), "mlp/down": (hidden, model)}
    return {name: normal(seed + i, *ends.get(name, (model, model))) for i, name in enumerate(COLUMNS + ROWS)}


def softmax(scores: Any) -> Any:
    """Softmax along the last axis; subtracting the maximum keeps exp from overflowing."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def attention(q: Any, k: Any, v: Any, mask: Any = True) -> Any:
    """Queries, keys and values (..., tokens, head_dim); where `mask` is False, a query does not see a key."""
    return softmax(np.where(mask, _scores(q, k), -np.inf)) @ np.asarray(v, np.float64)


def _scores(q: Any, k: Any) -> Any:
    return np.asarray(q, np.float64) @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])


class _Activations(NamedTuple):
    """Results of the forward pass that the backward pass needs; q, k, v and weights by heads."""

    q: Any
    k: Any
    v: Any
    weights: Any
    mixed: Any
    """Output of the attention, heads joined, before its projection."""
    y: Any
    """After attention, before the norm and the MLP."""
    z: Any
    """The MLP before relu."""


def layer_output(params: Mapping[str, Any], x: Any, heads: int, residuals: int = 1, scaled: bool = True) -> Any:
    """The output for (tokens, model). Deliberate mistakes: inputs added `residuals` times instead of once; scores that
    are not `scaled`."""
    p = exact(params)
    a = _activations(p, x, heads, residuals, scaled)
    return residuals * a.y + np.maximum(a.z, 0) @ p["mlp/down"]


def _normed(p: Mapping[str, Any], name: str, x: Any) -> Any:
    return x * p[name] / _root(x) if name in p else x


def _root(x: Any) -> Any:
    return np.sqrt((x * x).mean(axis=-1, keepdims=True) + EPSILON)


def _norm_gradients(p: Mapping[str, Any], name: str, x: Any, g: Any, grads: dict[str, Any]) -> Any:
    """The gradient of the input of a norm, whose gain's gradient is added to the others."""
    if name not in p:
        return g
    root, inner = _root(x), g * p[name]
    grads[name] = (g * x / root).sum(axis=0)
    return inner / root - x * (inner * x).mean(axis=-1, keepdims=True) / root**3


def layer_gradients(params: Mapping[str, Any], x: Any, g: Any, heads: int) -> dict[str, Any]:
    """The gradients of all parameters, and of the input under 'x'."""
    p = exact(params)
    q, k, v, weights, mixed, y, z = _activations(p, x, heads)
    dz = (g @ p["mlp/down"].T) * (z > 0)
    grads: dict[str, Any] = {"mlp/up": _normed(p, GAINS[1], y).T @ dz, "mlp/down": np.maximum(z, 0).T @ g}
    dy = g + _norm_gradients(p, GAINS[1], y, dz @ p["mlp/up"].T, grads)
    dmixed = _split(dy @ p["attention/output"].T, heads)
    dweights = dmixed @ np.swapaxes(v, -1, -2)
    dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True)) / np.sqrt(q.shape[-1])
    inner = (dscores @ k, np.swapaxes(dscores, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ dmixed)
    grads["attention/output"], h, dh = mixed.T @ dy, _normed(p, GAINS[0], x), 0
    for name, d in zip(COLUMNS, map(_joined, inner)):
        grads[name] = h.T @ d
        dh = dh + d @ p[name].T
    grads["x"] = dy + _norm_gradients(p, GAINS[0], x, dh, grads)
    return grads


def _activations(p: Mapping[str, Any], x: Any, heads: int, residuals: int = 1, scaled: bool = True) -> _Activations:
    q, k, v = (_split(_normed(p, GAINS[0], x) @ p[name], heads) for name in COLUMNS[:3])
    if not scaled:
        q = q * np.sqrt(q.shape[-1])
    weights = softmax(_scores(q, k))
    mixed = _joined(weights @ v)
    y = residuals * x + mixed @ p["attention/output"]
    return _Activations(q, k, v, weights, mixed, y, _normed(p, GAINS[1], y) @ p["mlp/up"])


def _split(rows: Any, heads: int) -> Any:
    """(tokens, model) as (heads, tokens, head_dim)."""
    return rows.reshape(len(rows), heads, -1).swapaxes(0, 1)


def _joined(of_heads: Any) -> Any:
    return of_heads.swapaxes(0, 1).reshape(of_heads.shape[1], -1)
