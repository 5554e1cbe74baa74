"""A transformer layer on one device, in float64: multi-head attention and an MLP, each with its residual connection.

It gives the expected results of puzzles that split the layer. It has no dropout, and an RMSNorm before attention and
MLP only where its parameters have gains.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

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
    p = _in_float64(params)
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
    p = _in_float64(params)
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


def _in_float64(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: np.asarray(weight, np.float64) for name, weight in params.items()}


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
