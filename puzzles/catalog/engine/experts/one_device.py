"""The layers of this chapter on one device, token by token: what devices that share the work are compared with.

Whole numbers of float32 wherever the papers allow: only softmax, and what is multiplied by it, is rounded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from puzzles.catalog.engine.two_layers import DEVICES, drawn

Params = Mapping[str, Any]


def parameters(seed: int, model_dim: int, hidden_dim: int) -> dict[str, Any]:
    """A router, (model_dim, DEVICES), and two weights for each of DEVICES experts."""
    params = {"router/weights": drawn(seed, model_dim, DEVICES, most=16) / np.float32(64)}
    for e in range(DEVICES):
        params[f"expert_{e}/w0"] = drawn(seed + 10 + e, model_dim, hidden_dim, most=1)
        params[f"expert_{e}/w1"] = drawn(seed + 20 + e, hidden_dim, model_dim, most=1)
    return params


def groups(seed: int, tokens: int, model_dim: int) -> list[Any]:
    """Each device's tokens."""
    return [drawn(seed + device, tokens, model_dim) for device in range(DEVICES)]


def softmax(logits: Any) -> Any:
    grown = np.exp(logits - logits.max(axis=1, keepdims=True))
    return grown / grown.sum(axis=1, keepdims=True)


def probabilities(params: Params, x: Any) -> Any:
    """p(x) of each token, (tokens, experts)."""
    return softmax(x @ params["router/weights"])


def served(params: Params, e: int, token: Any) -> Any:
    """What expert `e` makes of one token."""
    return np.maximum(token @ params[f"expert_{e}/w0"], 0) @ params[f"expert_{e}/w1"]


def choices(params: Params, x: Any) -> Any:
    """The expert of each token."""
    return probabilities(params, x).argmax(axis=1)


def counts(params: Params, xs: Sequence[Any]) -> Any:
    """How many tokens of each device go to each expert: (devices, experts)."""
    return np.array([np.bincount(choices(params, x), minlength=DEVICES) for x in xs])


def switch(params: Params, x: Any, capacity: int, scaled: bool = True, overflow: float = 1.0) -> dict[str, Any]:
    """A Switch layer and its residual connection on one group of tokens: 'out', and which were 'dropped'. Mistakes:
    not `scaled` by p; an `overflow` of 0 where tokens are lost, of 1 where they pass by."""
    p, out, dropped = probabilities(params, x), x.copy(), []
    taken = [0] * DEVICES
    for i, token in enumerate(x):
        e = int(p[i].argmax())
        if taken[e] == capacity:
            out[i] *= overflow
            dropped.append(i)
        else:
            taken[e] += 1
            out[i] += (p[i, e] if scaled else 1) * served(params, e, token)
    return {"out": out, "dropped": np.array(dropped, int)}


def exact(params: Params, x: Any, scaled: bool = True, skipped: Collection[int] = ()) -> Any:
    """The same without a capacity. Mistake: experts that were `skipped`, as if they had seen zeros."""
    out = switch(params, x, len(x), scaled)["out"]
    for i, e in enumerate(choices(params, x)):
        if e in skipped:
            out[i] = x[i]
    return out


def top2(params: Params, x: Any, rnd: Any, capacity: int, mistake: str = "") -> dict[str, Any]:
    """The gate of GShard's Algorithm 1 on one group, token by token, and the layer that it is the gate of, with its
    residual connection: 'out' and the auxiliary loss 'aux'. Mistakes: 'unequal', gates that do not add up to 1;
    'alone', second choices that are counted from 0; 'mixed', both choices of a token before the next token; 'holes',
    a second choice that is not counted when the coin refuses it; 'half', g2 as the probability; 'always', no coin."""
    g, out = probabilities(params, x), x.copy()
    best = np.argsort(-g, axis=1, kind="stable")
    firsts = np.bincount(best[:, 0], minlength=DEVICES)
    turns = [(i, turn) for turn in (0, 1) for i in range(len(x))]
    if mistake == "mixed":
        turns.sort()
    count = np.zeros(DEVICES, int)
    stands: dict[tuple[int, int], Any] = {}  # the token at each place of each expert
    kept = []
    for i, turn in turns:
        if mistake == "alone" and (i, turn) == (0, 1):
            count[:] = 0
        e = int(best[i, turn])
        gate = g[i, e] / (1 if mistake == "unequal" else g[i, best[i, :2]].sum())
        wanted = turn == 0 or mistake == "always" or (1 if mistake == "half" else 2) * gate > rnd[i]
        place = e, int(count[e])
        if place[1] < capacity and wanted:
            stands[place] = x[i]
            kept.append((i, gate, place))
        count[e] += wanted or mistake != "holes"
    for i, gate, place in kept:
        out[i] += gate * served(params, place[0], stands[place])
    return {"out": out, "aux": (firsts / len(x) * g.mean(axis=0)).mean(keepdims=True)}


def balance(logits: Sequence[Any], alpha: float) -> tuple[Any, list[Any]]:
    """alpha N sum f P over all tokens of all devices, and its gradient for each device's logits; f is a constant."""
    p = [softmax(z.astype(np.float64)) for z in logits]
    every = np.concatenate(p)
    tokens, experts = every.shape
    f = np.bincount(every.argmax(axis=1), minlength=experts) / tokens
    weight = alpha * experts * f
    grads = [q * (weight - (q * weight).sum(axis=1, keepdims=True)) / tokens for q in p]
    return np.array([(weight * every.mean(axis=0)).sum()]), grads
