"""A transformer layer on one device, in float64: attention of several heads and an MLP, each added to its input.

Without norms and dropout, which work on each token alone. Also where the puzzles' numbers come from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

COLUMNS = ("attention/query", "attention/key", "attention/value", "mlp/up")
"""The weights that make something of the model's dimension: (model, model), and 'mlp/up' (model, hidden)."""

ROWS = ("attention/output", "mlp/down")
"""The weights that bring it back: (model, model) and (hidden, model)."""


def normal(seed: int, *shape: int) -> Any:
    """Numbers of variance 1/shape[0], so that a product with them keeps its size."""
    return (np.random.default_rng(seed).normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)


def layer(seed: int, model: int, hidden: int) -> dict[str, Any]:
    """The parameters of a layer."""
    ends = {"mlp/up": (model, hidden), "mlp/down": (hidden, model)}
    return {name: normal(seed + i, *ends.get(name, (model, model))) for i, name in enumerate(COLUMNS + ROWS)}


def softmax(scores: Any) -> Any:
    """Of each row, also where numbers are large."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def attention(q: Any, k: Any, v: Any, mask: Any = True) -> Any:
    """Queries, keys and values (..., tokens, head_dim); where `mask` is False, a query does not see a key."""
    return softmax(np.where(mask, _scores(q, k), -np.inf)) @ np.asarray(v, np.float64)


def _scores(q: Any, k: Any) -> Any:
    return np.asarray(q, np.float64) @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])


def forward(params: Mapping[str, Any], x: Any, heads: int, residuals: int = 1, scaled: bool = True) -> Any:
    """The output for (tokens, model). `residuals` is how often the inputs are added: once, unless by mistake."""
    p = {name: np.asarray(weight, np.float64) for name, weight in params.items()}
    q, k, v = (_split(x @ p[name], heads) for name in COLUMNS[:3])
    if not scaled:
        q = q * np.sqrt(q.shape[-1])
    y = residuals * x + _joined(attention(q, k, v)) @ p["attention/output"]
    return residuals * y + np.maximum(y @ p["mlp/up"], 0) @ p["mlp/down"]


def backward(params: Mapping[str, Any], x: Any, g: Any, heads: int) -> dict[str, Any]:
    """The gradients of all parameters, and 'x'."""
    p = {name: np.asarray(weight, np.float64) for name, weight in params.items()}
    q, k, v = (_split(x @ p[name], heads) for name in COLUMNS[:3])
    weights = softmax(_scores(q, k))
    mixed = _joined(weights @ v)
    y = x + mixed @ p["attention/output"]
    z = y @ p["mlp/up"]
    dz = (g @ p["mlp/down"].T) * (z > 0)
    dy = g + dz @ p["mlp/up"].T
    dmixed = _split(dy @ p["attention/output"].T, heads)
    dweights = dmixed @ np.swapaxes(v, -1, -2)
    dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True)) / np.sqrt(q.shape[-1])
    inner = (dscores @ k, np.swapaxes(dscores, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ dmixed)
    grads = {"mlp/up": y.T @ dz, "mlp/down": np.maximum(z, 0).T @ g, "attention/output": mixed.T @ dy, "x": dy}
    for name, d in zip(COLUMNS, map(_joined, inner)):
        grads[name] = x.T @ d
        grads["x"] = grads["x"] + d @ p[name].T
    return grads


def _split(rows: Any, heads: int) -> Any:
    """(tokens, model) as (heads, tokens, head_dim)."""
    return rows.reshape(len(rows), heads, -1).swapaxes(0, 1)


def _joined(of_heads: Any) -> Any:
    return of_heads.swapaxes(0, 1).reshape(of_heads.shape[1], -1)
