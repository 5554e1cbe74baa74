"""Mixture-of-experts layers on one device, token by token: the expected results of devices that share the work.

The loops follow the papers' own order, instead of the vectorized form of the solutions, so the two are unlikely to
share a mistake. The router and the tokens are such that its logits are exact: experts are chosen alike everywhere.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from puzzles.catalog.engine.transformer import softmax
from puzzles.catalog.engine.two_layer_mlp import DEVICES, integers, numbers

Params = Mapping[str, Any]


def expert_parameters(seed: int, model_dim: int, hidden_dim: int) -> dict[str, Any]:
    """A router, (model_dim, DEVICES), and two weights for each of DEVICES experts."""
    params = {"router/weights": integers(seed, model_dim, DEVICES, most=16, is_fixed=True) / np.float32(64)}
    for e in range(DEVICES):
        params[f"expert_{e}/w0"] = numbers(seed + 10 + e, model_dim, hidden_dim)
        params[f"expert_{e}/w1"] = numbers(seed + 20 + e, hidden_dim, model_dim)
    return params


def token_groups(seed: int, tokens: int, model_dim: int) -> list[Any]:
    """Each device's tokens, (tokens, model_dim): multiples of 2^-14, which float16 does not have."""
    return [
        integers(seed + device, tokens, model_dim, is_fixed=True)
        + integers(seed + device + 7, tokens, model_dim, most=127, is_fixed=True) / np.float32(1 << 14)
        for device in range(DEVICES)
    ]


def router_probabilities(params: Params, x: Any) -> Any:
    """p(x) of each token, (tokens, experts)."""
    return softmax(x @ params["router/weights"])


def expert_output(params: Params, e: int, token: Any) -> Any:
    """Output of expert `e` for one token."""
    return np.maximum(token @ params[f"expert_{e}/w0"], 0) @ params[f"expert_{e}/w1"]


def chosen_experts(params: Params, x: Any) -> Any:
    """The likeliest expert of each token, (tokens,)."""
    return router_probabilities(params, x).argmax(axis=1)


def token_counts(params: Params, xs: Sequence[Any]) -> Any:
    """Number of tokens that each device sends to each expert, (devices, experts)."""
    return np.array([np.bincount(chosen_experts(params, x), minlength=DEVICES) for x in xs])


def switch_layer(params: Params, x: Any, capacity: int, scaled: bool = True, overflow: float = 1.0) -> dict[str, Any]:
    """A Switch layer and its residual connection on one group of tokens: 'out', and the indices of 'dropped' tokens.

    Deliberate mistakes: not `scaled` by p; an `overflow` of 0, which loses dropped tokens instead of passing them on.
    """
    p, out, dropped = router_probabilities(params, x), x.copy(), []
    taken = [0] * DEVICES
    for i, token in enumerate(x):
        e = int(p[i].argmax())
        if taken[e] == capacity:
            out[i] *= overflow
            dropped.append(i)
        else:
            taken[e] += 1
            out[i] += (p[i, e] if scaled else 1) * expert_output(params, e, token)
    return {"out": out, "dropped": np.array(dropped, int)}


def dropless_layer(params: Params, x: Any, scaled: bool = True, skipped: Collection[int] = ()) -> Any:
    """A Switch layer without a capacity. Deliberate mistake: `skipped` experts, as if their inputs were 0."""
    out = switch_layer(params, x, len(x), scaled)["out"]
    for i, e in enumerate(chosen_experts(params, x)):
        if e in skipped:
            out[i] = x[i]
    return out


def top2_layer(params: Params, x: Any, rnd: Any, capacity: int, mistake: str = "") -> dict[str, Any]:
    """A layer with the gate of GShard's Algorithm 1 on one group of tokens, and its residual connection: 'out', and the
    auxiliary loss 'aux', (1,).

    Deliberate mistakes: 'unequal', gates that do not add up to 1; 'alone', second choices counted from 0; 'mixed', both
    choices of a token before the next token; 'holes', a second choice that is not counted when the draw refuses it;
    'half', g2 as the probability; 'always', no draw.
    """
    g, out = router_probabilities(params, x), x.copy()
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
        out[i] += gate * expert_output(params, place[0], stands[place])
    return {"out": out, "aux": (firsts / len(x) * g.mean(axis=0)).mean(keepdims=True)}


def balance_loss_and_gradients(logits: Sequence[Any], alpha: float) -> tuple[Any, list[Any]]:
    """alpha N sum f P over all tokens of all devices, and its gradient for each device's logits, with f constant."""
    p = [softmax(z.astype(np.float64)) for z in logits]
    every = np.concatenate(p)
    tokens, experts = every.shape
    f = np.bincount(every.argmax(axis=1), minlength=experts) / tokens
    weight = alpha * experts * f
    grads = [q * (weight - (q * weight).sum(axis=1, keepdims=True)) / tokens for q in p]
    return np.array([(weight * every.mean(axis=0)).sum()]), grads
